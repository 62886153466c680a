// The options of `weir loadtest` for growth and capacity.
#pragma once

#include <vector>

#include "CLI/App.hpp"
#include "client/loadtest/run.h"

namespace weir {

// Sets run->growth and run->capacity. Returns the options that say how sessions grow, but for --positions.
std::vector<CLI::Option*> AddGrowthOptions(CLI::App* app, LoadtestOptions* run);

// After parsing: positions that cannot be, or one of `how_given` without positions, are a UsageError.
absl::Status CompleteGrowthOptions(const std::vector<CLI::Option*>& how_given, LoadtestOptions* run);

}  // namespace weir
