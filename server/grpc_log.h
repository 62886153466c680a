// gRPC's own log lines, in the server's log.
#pragma once

namespace weir {

// Errors become warnings (they are gRPC's, not ours), everything else goes to debug.
void RouteGrpcLog();

}  // namespace weir
