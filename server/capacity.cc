#include "server/capacity.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/engine/model_runner.h"
#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"

namespace weir {
namespace {

// What calls may take, as far as it is not counted elsewhere: gRPC's buffers, threads, answers. A small
// container has fewer slots, so fewer calls at once.
int64_t CallBytes(int64_t memory_limit) { return std::min<int64_t>(32 << 20, memory_limit / 8); }

absl::Status TooSmall(const std::string& flag, int64_t share, int64_t needed, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "MEMORY_TOO_SMALL",
                   fmt::format("a model's share of {} is {} bytes, and {} needs {}; raise {}, or give the "
                               "server more memory",
                               flag, share, what, needed, flag),
                   {{"share", std::to_string(share)}, {"needed", std::to_string(needed)}});
}

}  // namespace

int64_t RequestLineBytes(int64_t memory_limit) { return std::min<int64_t>(64 << 20, memory_limit / 16); }

HostMemory ShareHostMemory(int64_t memory_limit, int64_t taken, const CapacityRequest& request,
                           const std::vector<const LanguageModel*>& models, int num_threads) {
  HostMemory host = {memory_limit, taken, CallBytes(memory_limit) + RequestLineBytes(memory_limit)};
  RunnerLimits limits;
  limits.max_step_tokens = request.max_step_tokens;
  limits.max_step_seqs = std::min(limits.max_step_seqs, request.max_step_tokens);
  for (const LanguageModel* model : models)
    host.reserve += ModelRunner::StepBytes(*model, limits, num_threads);
  return host;
}

absl::Status CheckAnyLeft(const HostMemory& host) {
  if (host.limit <= 0 || host.free() > 0) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, "MEMORY_TOO_SMALL",
      fmt::format(
          "of {} bytes of memory, program and weights take {}, and steps and calls may take {}: nothing is "
          "left for sessions; raise the limit of the container, or serve fewer models",
          host.limit, host.taken, host.reserve),
      {{"limit", std::to_string(host.limit)}, {"needed", std::to_string(host.taken + host.reserve + 1)}});
}

absl::Status CheckFits(const HostMemory& host, const std::vector<CapacityPlan>& plans,
                       int64_t snapshot_memory) {
  if (host.limit <= 0) return absl::OkStatus();
  int64_t states = 0, caches = 0;
  for (const CapacityPlan& plan : plans) {
    states += plan.limits.slots * plan.slot_bytes;
    caches += plan.limits.kv_blocks * plan.block_bytes;
  }
  const int64_t needed = states + caches + snapshot_memory;
  if (needed <= host.free()) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kInvalidArgument, "MEMORY_TOO_SMALL",
      fmt::format(
          "of {} bytes of memory, program and weights take {}, and steps and calls may take {}: the {} that "
          "are left do not hold states of {}, caches of {} and snapshots of {}; lower --state-memory (or "
          "--slots), --kv-memory or --snapshot-memory, or raise the limit of the container",
          host.limit, host.taken, host.reserve, host.free(), states, caches, snapshot_memory),
      {{"limit", std::to_string(host.limit)},
       {"needed", std::to_string(host.taken + host.reserve + needed)}});
}

absl::StatusOr<std::vector<CapacityPlan>> PlanCapacity(const CapacityRequest& request,
                                                       const std::vector<const LanguageModel*>& models) {
  int64_t num_fixed = 0, num_paged = 0;
  for (const LanguageModel* model : models) {
    num_fixed += StateArena::SlotBytes(model->States()) > 0 ? 1 : 0;
    num_paged += model->Paged().num_layers > 0 ? 1 : 0;
  }
  std::vector<CapacityPlan> plans;
  for (const LanguageModel* model : models) {
    CapacityPlan plan;
    plan.limits.max_step_tokens = request.max_step_tokens;
    plan.limits.max_waiting = request.max_waiting;
    plan.slot_bytes = StateArena::SlotBytes(model->States());
    plan.limits.slots = request.slots;
    if (plan.slot_bytes > 0) {
      const int64_t share = request.state_memory / num_fixed;
      if (share < plan.slot_bytes) return TooSmall("--state-memory", share, plan.slot_bytes, "one session");
      plan.limits.slots = static_cast<int>(std::min<int64_t>(request.slots, share / plan.slot_bytes));
    }
    const PagedSpec paged = model->Paged();
    if (paged.num_layers > 0) {
      plan.block_bytes = paged.block_bytes(kKvBlockTokens);
      const int64_t share = request.kv_memory.value_or(request.kv_memory_limit) / num_paged;
      plan.limits.kv_blocks = share / plan.block_bytes;
      if (!request.kv_memory && model->context_limit() > 0)
        plan.limits.kv_blocks =
            std::min(plan.limits.kv_blocks, plan.limits.slots * KvPool::BlocksFor(model->context_limit()));
      if (plan.limits.kv_blocks < 1) return TooSmall("--kv-memory", share, plan.block_bytes, "one KV block");
    }
    plan.limits.max_step_seqs = std::min(plan.limits.max_step_seqs, request.max_step_tokens);
    plans.push_back(plan);
  }
  return plans;
}

}  // namespace weir
