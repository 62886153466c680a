// weir.v1.Server over gRPC: capacity, use and counters.
#pragma once

#include "absl/time/time.h"
#include "server/grpc/gate.h"
#include "weir/v1/server_info.grpc.pb.h"

namespace weir {

// Owned by the server; the gate outlives it.
class ServerService final : public v1::Server::CallbackService {
 public:
  ServerService(const Gate* gate, absl::Time start_time) : gate_(*gate), start_time_(start_time) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;

 private:
  const Gate& gate_;
  const absl::Time start_time_;
};

}  // namespace weir
