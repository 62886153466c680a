// gRPC's own log lines, in the server's log.
#pragma once

namespace weir {

// Errors become warnings (they are gRPC's, not ours), everything else goes to debug.
void RouteGrpcLog();

// Called, from any thread and once, when gRPC has given up accepting connections. In its version 1.51 one
// accept without a free descriptor is enough, and nothing makes it begin again.
void OnAcceptingEnded(void (*callback)());

// While held, errors go to debug too: for calls whose failure the caller words himself. Any thread.
void HoldGrpcErrors(bool hold);

}  // namespace weir
