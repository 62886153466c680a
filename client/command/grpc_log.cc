#include "client/command/grpc_log.h"

#include <cstdlib>

#include "grpc/support/log.h"

namespace weir {

void SilenceGrpcLog() {
  const char* const wanted = std::getenv("GRPC_VERBOSITY");
  if (wanted == nullptr || *wanted == '\0') gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace weir
