#include "server/grpc_log.h"

#include "grpc/support/log.h"
#include "spdlog/spdlog.h"

namespace weir {
namespace {

void Write(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_ERROR)
    spdlog::warn("grpc: {}", args->message);
  else
    spdlog::debug("grpc: {}", args->message);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(Write); }

}  // namespace weir
