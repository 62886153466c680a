// weir.v1.Generation over gRPC.
#pragma once

#include "server/grpc/gate.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/generation.grpc.pb.h"

namespace weir {

// Owned by the server; gate and watch outlive it.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  GenerationService(const Gate* gate, StreamWatch* watch) : gate_(*gate), watch_(*watch) {}
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;

 private:
  const Gate& gate_;
  StreamWatch& watch_;
};

}  // namespace weir
