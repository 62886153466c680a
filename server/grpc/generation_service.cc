#include "server/grpc/generation_service.h"

#include "server/grpc/generate_reactor.h"

namespace weir {

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return GenerateReactor::Start(gate_.Admit(*context), &watch_, context, request);
}

}  // namespace weir
