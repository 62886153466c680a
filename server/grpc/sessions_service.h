// weir.v1.Sessions over gRPC.
#pragma once

#include "server/grpc/gate.h"
#include "server/grpc/stream_watch.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir {

// Owned by the server; gate and watch outlive it.
class SessionsService final : public v1::Sessions::CallbackService {
 public:
  SessionsService(const Gate* gate, StreamWatch* watch) : gate_(*gate), watch_(*watch) {}

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
  grpc::ServerUnaryReactor* UpdateSession(grpc::CallbackServerContext* context,
                                          const v1::UpdateSessionRequest* request,
                                          v1::Session* response) override;
  grpc::ServerUnaryReactor* CreateSnapshot(grpc::CallbackServerContext* context,
                                           const v1::CreateSnapshotRequest* request,
                                           v1::Snapshot* response) override;
  grpc::ServerUnaryReactor* GetSnapshot(grpc::CallbackServerContext* context,
                                        const v1::GetSnapshotRequest* request,
                                        v1::Snapshot* response) override;
  grpc::ServerUnaryReactor* ListSnapshots(grpc::CallbackServerContext* context,
                                          const v1::ListSnapshotsRequest* request,
                                          v1::ListSnapshotsResponse* response) override;
  grpc::ServerUnaryReactor* DeleteSnapshot(grpc::CallbackServerContext* context,
                                           const v1::DeleteSnapshotRequest* request,
                                           google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* RollbackSession(grpc::CallbackServerContext* context,
                                            const v1::RollbackSessionRequest* request,
                                            v1::Session* response) override;
  grpc::ServerWriteReactor<v1::ExportSessionResponse>* ExportSession(
      grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request) override;
  grpc::ServerReadReactor<v1::ImportSessionRequest>* ImportSession(grpc::CallbackServerContext* context,
                                                                   v1::Session* response) override;

 private:
  const Gate& gate_;
  StreamWatch& watch_;
};

}  // namespace weir
