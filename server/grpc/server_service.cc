#include "server/grpc/server_service.h"

#include <unistd.h>

#include <cstdio>

#include "runtime/base/clock.h"
#include "server/frontend/model_calls.h"
#include "server/grpc/status.h"

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

}  // namespace

int64_t ResidentBytes() {
  long long size = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

grpc::ServerUnaryReactor* ServerService::GetServerInfo(grpc::CallbackServerContext* context,
                                                       const v1::GetServerInfoRequest* /*request*/,
                                                       v1::ServerInfo* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<AdmittedCall> call = gate_.Admit(*context);
  if (!call.ok()) {
    reactor->Finish(ToGrpc(call.status()));
    return reactor;
  }
  const Frontend& frontend = *call->frontend;
  Engine& engine = frontend.engine();
  const Device& device = engine.device();
  response->set_version(WEIR_VERSION);
  response->mutable_start_time()->set_seconds(absl::ToUnixSeconds(ToWallTime(start_time_)));
  response->set_draining(engine.draining());
  response->set_device(device.name());
  response->set_compute_threads(frontend.options().compute_threads);
  response->set_process_resident_bytes(ResidentBytes());
  response->set_device_allocated_bytes(device.allocated_bytes());
  response->set_snapshot_memory_bytes(engine.snapshot_budget().limit());
  response->set_snapshot_memory_used_bytes(engine.snapshot_budget().used());
  const std::vector<RunnerStats> stats = engine.Stats();
  for (size_t i = 0; i < stats.size(); ++i) FillUse(stats[i], frontend.models()[i], response->add_models());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace weir
