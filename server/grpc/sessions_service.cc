#include "server/grpc/sessions_service.h"

#include <utility>

#include "server/frontend/names.h"
#include "server/frontend/session_calls.h"
#include "server/frontend/snapshot_calls.h"
#include "server/grpc/export_reactor.h"
#include "server/grpc/hand_over.h"
#include "server/grpc/import_reactor.h"
#include "server/grpc/status.h"
#include "server/grpc/unary_turn.h"

namespace weir {
namespace {

// Starts `start(Calls, reply)`; the default reactor is finished by the reply.
template <class Calls, class Response, class Result, class F>
grpc::ServerUnaryReactor* AnswerBy(grpc::CallbackServerContext* context, const FrontendSlot& slot,
                                   Response* response, Reply<Result> /*tag*/, F start) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<Frontend*> frontend = slot.Get();
  if (!frontend.ok()) {
    reactor->Finish(ToGrpc(frontend.status()));
    return reactor;
  }
  start(Calls(*frontend), [reactor, response](absl::StatusOr<Result> result) {
    if constexpr (std::is_same_v<Response, Result>)
      if (result.ok()) *response = *std::move(result);
    reactor->Finish(ToGrpc(result.status()));
  });
  return reactor;
}

template <class Response, class Result, class F>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const FrontendSlot& slot,
                                 Response* response, Reply<Result> tag, F start) {
  return AnswerBy<SessionCalls>(context, slot, response, std::move(tag), std::move(start));
}

class AppendTurn final : public UnaryTurn {
 public:
  static AppendTurn* Start(absl::StatusOr<Frontend*> frontend, CallInfo call,
                           const v1::AppendSessionRequest* request, v1::AppendSessionResponse* response) {
    auto turn = std::make_shared<AppendTurn>(frontend.value_or(nullptr), call.owner, response);
    turn->Own(turn, call.deadline);
    if (frontend.ok())
      (*frontend)->Append(*request, std::move(call), turn);
    else
      turn->OnRefused(frontend.status());
    HandOver(turn.get());
    return turn.get();
  }
  AppendTurn(Frontend* frontend, std::string owner, v1::AppendSessionResponse* response)
      : frontend_(frontend), owner_(std::move(owner)), response_(*response) {}

 private:
  void OnChunk(const StartedTurn& /*turn*/, const StreamChunk& /*chunk*/) override {}
  void OnFinish(const StartedTurn& turn, const weir::Finish& finish) override {
    response_.set_appended_tokens(finish.prompt_tokens);
    frontend_->engine().GetSession(turn.session, owner_,
                                   [this, keep = self()](absl::StatusOr<SessionInfo> info) {
                                     if (info.ok())
                                       *response_.mutable_session() = SessionToProto(*info, *frontend_);
                                     FinishCall(info.status());
                                   });
  }

  Frontend* const frontend_;
  const std::string owner_;
  v1::AppendSessionResponse& response_;
};

}  // namespace

grpc::ServerUnaryReactor* SessionsService::CreateSession(grpc::CallbackServerContext* context,
                                                         const v1::CreateSessionRequest* request,
                                                         v1::Session* response) {
  return Answer(context, slot_, response, Reply<v1::Session>(), [&](SessionCalls calls, auto reply) {
    calls.Create(*request, ReadCallInfo(*context), std::move(reply));
  });
}

grpc::ServerUnaryReactor* SessionsService::GetSession(grpc::CallbackServerContext* context,
                                                      const v1::GetSessionRequest* request,
                                                      v1::Session* response) {
  return Answer(context, slot_, response, Reply<v1::Session>(), [&](SessionCalls calls, auto reply) {
    calls.Get(*request, ReadCallInfo(*context), std::move(reply));
  });
}

grpc::ServerUnaryReactor* SessionsService::ListSessions(grpc::CallbackServerContext* context,
                                                        const v1::ListSessionsRequest* request,
                                                        v1::ListSessionsResponse* response) {
  return Answer(context, slot_, response, Reply<v1::ListSessionsResponse>(),
                [&](SessionCalls calls, auto reply) {
                  calls.List(*request, ReadCallInfo(*context), std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::DeleteSession(grpc::CallbackServerContext* context,
                                                         const v1::DeleteSessionRequest* request,
                                                         google::protobuf::Empty* response) {
  return Answer(context, slot_, response, Reply<v1::Session>(), [&](SessionCalls calls, auto reply) {
    calls.Delete(*request, ReadCallInfo(*context), std::move(reply));
  });
}

grpc::ServerUnaryReactor* SessionsService::AppendSession(grpc::CallbackServerContext* context,
                                                         const v1::AppendSessionRequest* request,
                                                         v1::AppendSessionResponse* response) {
  const absl::StatusOr<Frontend*> frontend = slot_.Get();
  if (!frontend.ok() || request->request_id().empty())
    return AppendTurn::Start(frontend, ReadCallInfo(*context), request, response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  (*frontend)->AppendOnce(*request, ReadCallInfo(*context),
                          [reactor, response](absl::StatusOr<v1::AppendSessionResponse> result) {
                            if (result.ok()) *response = *std::move(result);
                            reactor->Finish(ToGrpc(result.status()));
                          });
  return reactor;
}

grpc::ServerUnaryReactor* SessionsService::ForkSession(grpc::CallbackServerContext* context,
                                                       const v1::ForkSessionRequest* request,
                                                       v1::Session* response) {
  return Answer(context, slot_, response, Reply<v1::Session>(), [&](SessionCalls calls, auto reply) {
    calls.Fork(*request, ReadCallInfo(*context), std::move(reply));
  });
}

grpc::ServerUnaryReactor* SessionsService::UpdateSession(grpc::CallbackServerContext* context,
                                                         const v1::UpdateSessionRequest* request,
                                                         v1::Session* response) {
  return Answer(context, slot_, response, Reply<v1::Session>(), [&](SessionCalls calls, auto reply) {
    calls.Update(*request, ReadCallInfo(*context), std::move(reply));
  });
}

grpc::ServerUnaryReactor* SessionsService::CreateSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::CreateSnapshotRequest* request,
                                                          v1::Snapshot* response) {
  return AnswerBy<SnapshotCalls>(context, slot_, response, Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, auto reply) {
                                   calls.Create(*request, ReadCallInfo(*context), std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::GetSnapshot(grpc::CallbackServerContext* context,
                                                       const v1::GetSnapshotRequest* request,
                                                       v1::Snapshot* response) {
  return AnswerBy<SnapshotCalls>(context, slot_, response, Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, auto reply) {
                                   calls.Get(*request, ReadCallInfo(*context), std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::ListSnapshots(grpc::CallbackServerContext* context,
                                                         const v1::ListSnapshotsRequest* request,
                                                         v1::ListSnapshotsResponse* response) {
  return AnswerBy<SnapshotCalls>(context, slot_, response, Reply<v1::ListSnapshotsResponse>(),
                                 [&](SnapshotCalls calls, auto reply) {
                                   calls.List(*request, ReadCallInfo(*context), std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::DeleteSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::DeleteSnapshotRequest* request,
                                                          google::protobuf::Empty* response) {
  return AnswerBy<SnapshotCalls>(context, slot_, response, Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, auto reply) {
                                   calls.Delete(*request, ReadCallInfo(*context), std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::RollbackSession(grpc::CallbackServerContext* context,
                                                           const v1::RollbackSessionRequest* request,
                                                           v1::Session* response) {
  return AnswerBy<SnapshotCalls>(context, slot_, response, Reply<v1::Session>(),
                                 [&](SnapshotCalls calls, auto reply) {
                                   calls.Rollback(*request, ReadCallInfo(*context), std::move(reply));
                                 });
}

grpc::ServerWriteReactor<v1::ExportSessionResponse>* SessionsService::ExportSession(
    grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request) {
  return ExportReactor::Start(slot_.Get(), &watch_, context, request);
}

grpc::ServerReadReactor<v1::ImportSessionRequest>* SessionsService::ImportSession(
    grpc::CallbackServerContext* context, v1::Session* response) {
  return ImportReactor::Start(slot_.Get(), &watch_, context, response);
}

}  // namespace weir
