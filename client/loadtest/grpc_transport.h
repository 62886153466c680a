// The Transport that speaks to a real server.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cancel_token.h"
#include "client/loadtest/loop.h"
#include "client/loadtest/transport.h"
#include "client/tls.h"

namespace weir {

struct GrpcTransportOptions {
  std::string address;  // as WeirClient::Connect takes it
  TlsOptions tls;
  std::string api_key;
  absl::Duration connect_timeout = absl::Seconds(5);
  // Connections to begin with. More are opened when each has 1,000 calls, which is where proxies and servers
  // commonly draw the line (gRPC would let further calls wait without a word).
  int connections = 4;
  // Idle time to live of the sessions that are made; zero: the server's default.
  absl::Duration session_ttl = absl::ZeroDuration();
};

// By gRPC's callback API: a message is stamped with the time and counted on the thread of gRPC that brings
// it, and goes to the Loop with all others that came meanwhile. No thread per stream, and none of ours.
//
// Fails as WeirClient::Connect() does, within connect_timeout or when `cancel` (may be null) is cancelled.
// `loop` has to outlive the transport.
absl::StatusOr<std::unique_ptr<Transport>> ConnectGrpcTransport(const GrpcTransportOptions& options,
                                                                Loop* loop, const CancelToken* cancel);

}  // namespace weir
