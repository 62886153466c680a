// weir.v1.Models over gRPC.
#pragma once

#include "server/grpc/gate.h"
#include "weir/v1/models.grpc.pb.h"

namespace weir {

// Owned by the server; the gate outlives it.
class ModelsService final : public v1::Models::CallbackService {
 public:
  explicit ModelsService(const Gate* gate) : gate_(*gate) {}

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                     v1::Model* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context, const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;

 private:
  const Gate& gate_;
};

}  // namespace weir
