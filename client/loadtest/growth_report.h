// The part of the report that growth has: for programs and for people.
#pragma once

#include <string>
#include <vector>

#include "client/loadtest/growth_figures.h"
#include "client/loadtest/state_shape.h"
#include "nlohmann/json.hpp"

namespace weir {

// Those of ReportJson()'s schema.
nlohmann::ordered_json GrowthJson(const GrowthFigures& figures);
nlohmann::ordered_json BreakEvenJson(const std::vector<BreakEven>& break_even);

// A line per position, then one per witness with its slope, then the verdict; lines of at most 120 columns
// but for the verdict's.
std::string GrowthText(const std::string& model, const GrowthFigures& figures);
// A line per pair. What a session of `model` costs, and from where on a session of the other one costs as
// much.
std::string BreakEvenText(const std::string& model, int64_t fixed_bytes,
                          const std::vector<BreakEven>& break_even);

}  // namespace weir
