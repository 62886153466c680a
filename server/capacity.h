// How memory is shared out among models: slots for states, blocks for caches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/engine/engine.h"

namespace weir {

struct CapacityRequest {
  int slots = 256;                   // per model
  int64_t state_memory = 0;          // bytes for the fixed states of all models
  std::optional<int64_t> kv_memory;  // bytes for the blocks of all models; unset: kv_memory_limit at most,
  int64_t kv_memory_limit = 0;       // and no more than the slots can use
  int max_step_tokens = 512;
  int max_waiting = 64;
};

struct CapacityPlan {
  RunnerLimits limits;
  int64_t slot_bytes = 0;
  int64_t block_bytes = 0;
};

// One plan per model, in order; each gets an equal share of either memory. INVALID_ARGUMENT, naming the
// bytes, where a share does not hold one slot or one block.
absl::StatusOr<std::vector<CapacityPlan>> PlanCapacity(const CapacityRequest& request,
                                                       const std::vector<const LanguageModel*>& models);

}  // namespace weir
