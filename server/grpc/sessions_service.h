// weir.v1.Sessions over gRPC.
#pragma once

#include "server/grpc/call_info.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {

// Owned by the server; the slot outlives it.
class SessionsService final : public v1::Sessions::CallbackService {
 public:
  explicit SessionsService(const FrontendSlot* slot) : slot_(*slot) {}

  grpc::ServerUnaryReactor* CreateSession(grpc::CallbackServerContext* context,
                                          const v1::CreateSessionRequest* request,
                                          v1::Session* response) override;
  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest* request, v1::Session* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context,
                                          const v1::DeleteSessionRequest* request,
                                          google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* AppendSession(grpc::CallbackServerContext* context,
                                          const v1::AppendSessionRequest* request,
                                          v1::AppendSessionResponse* response) override;
  grpc::ServerUnaryReactor* ForkSession(grpc::CallbackServerContext* context,
                                        const v1::ForkSessionRequest* request,
                                        v1::Session* response) override;

 private:
  const FrontendSlot& slot_;
};

}  // namespace weir
