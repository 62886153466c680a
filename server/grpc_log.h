// gRPC's own log lines, in the server's log.
#pragma once

namespace weir {

// Errors become warnings (they are gRPC's, not ours), everything else goes to debug.
void RouteGrpcLog();

// While held, errors go to debug too: for calls whose failure the caller words himself. Any thread.
void HoldGrpcErrors(bool hold);

}  // namespace weir
