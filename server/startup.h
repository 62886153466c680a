// From options to an engine that holds its models.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/loaded_model.h"
#include "runtime/engine/engine.h"
#include "server/options.h"
#include "server/server.h"

namespace weir {

struct LoadedEngine {
  std::unique_ptr<Engine> engine;
  std::vector<LoadedModel> models;  // models[i] is the engine's model i
};

// Loads the models, shares out memory, starts the engine, and logs one line for each model. Takes seconds.
// `on_device_lost`: as EngineOptions has it.
absl::StatusOr<LoadedEngine> LoadEngine(const Options& options, QuotaLookup quota_of,
                                        std::function<void(const absl::Status&)> on_device_lost);

// Warns of what is open to the network.
void LogAccess(const Options& options);

// 0 in the options stands for the usable CPUs.
int ComputeThreads(const Options& options);

ServerOptions ServerOptionsOf(const Options& options);

}  // namespace weir
