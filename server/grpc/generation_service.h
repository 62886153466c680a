// weir.v1.Generation over gRPC.
#pragma once

#include "server/grpc/call_info.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/generation.grpc.pb.h"

namespace weir {

// Owned by the server; slot and watch outlive it.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  GenerationService(const FrontendSlot* slot, StreamWatch* watch) : slot_(*slot), watch_(*watch) {}
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* context,
                                                           const v1::GenerateRequest* request) override;

 private:
  const FrontendSlot& slot_;
  StreamWatch& watch_;
};

}  // namespace weir
