// Growth and capacity of one model, as parts of a whole load test.
#pragma once

#include <string>
#include <vector>

#include "client/loadtest/growth.h"
#include "client/loadtest/report.h"
#include "client/loadtest/transport.h"

namespace weir {

struct LoadtestHooks;

// Both run `loop` until they are done, put their figures into `report`, and what did not pass into
// `failures`. `options` are those of all models; what belongs to this one is set here.
absl::Status RunGrowth(GrowthOptions options, int32_t vocab_size, const LoadtestHooks& hooks, Loop* loop,
                       Transport* transport, ModelReport* report, std::vector<std::string>* failures);
absl::Status RunCapacity(int32_t vocab_size, uint64_t seed, const LoadtestHooks& hooks, Loop* loop,
                         Transport* transport, ModelReport* report, std::vector<std::string>* failures);

// Before the first of them: of each model for which `options` cannot lead to a verdict.
void WarnOfGrowth(const GrowthOptions& options, const std::vector<ModelReport>& models,
                  const LoadtestHooks& hooks);

// Whether all that keeps the run from passing is growth on which nothing was decided.
bool IsUndecided(const Report& report);

// Of every model of constant state against every one whose state grows, from the shapes alone.
void FindBreakEvens(std::vector<ModelReport>* models);

}  // namespace weir
