// gRPC's own log lines, which would stand between those of the command.
#pragma once

namespace weir {

// Drops them, unless GRPC_VERBOSITY is set. Called before gRPC is used.
void SilenceGrpcLog();

}  // namespace weir
