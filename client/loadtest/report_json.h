// The report for programs.
#pragma once

#include "client/loadtest/distribution.h"
#include "client/loadtest/report.h"
#include "nlohmann/json.hpp"

namespace weir {

// Schema 1 (client/README.md). Fields are always there; null where there is no such figure.
nlohmann::ordered_json ReportJson(const Report& report);

nlohmann::ordered_json DistributionJson(const Distribution& distribution);

}  // namespace weir
