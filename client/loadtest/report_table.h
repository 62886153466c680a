// The report for people.
#pragma once

#include <string>

#include "client/loadtest/report.h"

namespace weir {

// Lines of at most 120 columns, ASCII: what was measured, a table of the phases of traffic, errors, and why
// the run did not pass, where it did not.
std::string ReportTable(const Report& report);

}  // namespace weir
