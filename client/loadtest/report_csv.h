// The report for spreadsheets.
#pragma once

#include <string>

#include "client/loadtest/report.h"

namespace weir {

// RFC 4180: a line of column names, then a line per model and phase; lines end with CR LF. A mixed phase has
// a line for each of its models and one, named "all", for all of them. Columns that do not belong to a phase
// are empty.
std::string ReportCsv(const Report& report);

}  // namespace weir
