// How memory is shared out among models: slots for states, blocks for caches.
#pragma once

#include <algorithm>
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

// The memory of the container or machine, and what of it sessions may have.
struct HostMemory {
  int64_t limit = 0;    // bytes; 0: unknown
  int64_t taken = 0;    // by the program, its libraries and the weights
  int64_t reserve = 0;  // for steps, calls, and requests in line
  int64_t free() const { return std::max<int64_t>(0, limit - taken - reserve); }
};

// Bytes of requests that may wait for a frontend thread: little where there is little memory.
int64_t RequestLineBytes(int64_t memory_limit);

// `taken`: bytes that are resident once the models are loaded.
HostMemory ShareHostMemory(int64_t memory_limit, int64_t taken, const CapacityRequest& request,
                           const std::vector<const LanguageModel*>& models, int num_threads);

// INVALID_ARGUMENT, naming all of the bytes, where nothing is left for sessions, whatever the options.
absl::Status CheckAnyLeft(const HostMemory& host);

// Whether states, caches and snapshots may all be full without the kernel ending the process.
// INVALID_ARGUMENT, naming all of the bytes, where not.
absl::Status CheckFits(const HostMemory& host, const std::vector<CapacityPlan>& plans,
                       int64_t snapshot_memory);

// One plan per model, in order; those with fixed states get equal shares of the one memory, those with paged
// caches of the other. INVALID_ARGUMENT, naming the bytes, where a share does not hold one slot or one block.
absl::StatusOr<std::vector<CapacityPlan>> PlanCapacity(const CapacityRequest& request,
                                                       const std::vector<const LanguageModel*>& models);

}  // namespace weir
