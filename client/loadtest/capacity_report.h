// The part of the report that capacity has: for programs and for people.
#pragma once

#include <string>

#include "client/loadtest/capacity_figures.h"
#include "nlohmann/json.hpp"

namespace weir {

// That of ReportJson()'s schema: null for what was not tried.
nlohmann::ordered_json CapacityJson(const CapacityFigures& figures);

// Lines of at most 120 columns but for the failure's; "not tried" where there is no value.
std::string CapacityText(const std::string& model, const CapacityFigures& figures);

}  // namespace weir
