#include "server/grpc/server_service.h"

#include "runtime/base/clock.h"
#include "server/frontend/model_calls.h"
#include "server/grpc/frontend_task.h"
#include "server/process_memory.h"

namespace weir {
namespace {

void FillUse(const RunnerStats& stats, const LoadedModel& model, v1::ModelUse* out) {
  *out->mutable_model() = ModelToProto(model);
  out->set_slots_total(stats.slots_total);
  out->set_slots_free(stats.slots_free);
  out->set_kv_blocks_total(stats.kv_blocks_total);
  out->set_kv_blocks_free(stats.kv_blocks_free);
  out->set_sessions(stats.sessions);
  out->set_requests_running(stats.running);
  out->set_requests_waiting(stats.waiting);
  out->set_prompt_tokens(stats.prompt_tokens);
  out->set_prefilled_tokens(stats.prefilled_tokens);
  out->set_generated_tokens(stats.generated_tokens);
  out->set_steps(stats.steps);
  out->set_nonfinite_rows(stats.nonfinite_rows);
  out->set_state_pool_bytes(stats.slots_total * stats.slot_bytes +
                            stats.kv_blocks_total * stats.kv_block_bytes);
}

void FillMemory(const Device& device, v1::ServerInfo* out) {
  const ProcessMemory memory = ReadProcessMemory();
  out->set_process_resident_bytes(memory.resident);
  out->set_process_proportional_bytes(memory.proportional);
  out->set_process_anonymous_bytes(memory.anonymous);
  out->set_device_allocated_bytes(device.allocated_bytes());
  if (const int64_t used = device.used_bytes(); used > 0) out->set_device_used_bytes(used);
}

absl::StatusOr<v1::ServerInfo> ServerInfoOf(const Frontend& frontend, absl::Time start_time) {
  const Engine& engine = frontend.engine();
  v1::ServerInfo info;
  info.set_version(WEIR_VERSION);
  info.mutable_start_time()->set_seconds(absl::ToUnixSeconds(ToWallTime(start_time)));
  info.set_draining(frontend.leaving());
  info.set_device(engine.device().name());
  info.set_compute_threads(frontend.options().compute_threads);
  FillMemory(engine.device(), &info);
  info.set_snapshot_memory_bytes(frontend.engine().snapshot_budget().limit());
  info.set_snapshot_memory_used_bytes(frontend.engine().snapshot_budget().used());
  const std::vector<RunnerStats> stats = engine.Stats();
  for (size_t i = 0; i < stats.size(); ++i) FillUse(stats[i], frontend.models()[i], info.add_models());
  return info;
}

}  // namespace

// On one of the frontend's threads: the kernel counts this process's pages meanwhile.
grpc::ServerUnaryReactor* ServerService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetServerInfoRequest* request,
                                                       v1::ServerInfo* response) {
  return FrontendTask<v1::ServerInfo>::Start(
      gate_.Admit(*context), "GetServerInfo", "", static_cast<int64_t>(request->ByteSizeLong()), response,
      [start_time = start_time_](const Frontend& frontend, const CallInfo&, const std::atomic<bool>&) {
        return ServerInfoOf(frontend, start_time);
      });
}

}  // namespace weir
