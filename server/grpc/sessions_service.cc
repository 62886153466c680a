#include "server/grpc/sessions_service.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "runtime/base/clock.h"
#include "server/frontend/call_record.h"
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

using CallNames = std::initializer_list<std::string_view>;

// What the log says of a call whose answer is a session.
void NoteResult(std::string_view method, const v1::Session& session, CallRecord* record) {
  record->SetModel(session.model());
  // A fork is about its parent. A name may have been made up here.
  if (method == "ForkSession")
    record->SetNewSession(SessionIdOf(session.name()).value_or(""));
  else
    record->SetName(session.name());
}
void NoteResult(std::string_view /*method*/, const v1::Snapshot& snapshot, CallRecord* record) {
  record->SetName(snapshot.name());
}
template <class Response>
void NoteResult(std::string_view /*method*/, const Response& /*list*/, CallRecord* /*record*/) {}

// Starts `start(Calls, CallInfo, reply)`; the default reactor is finished by the reply, and the log has a
// line of it. `names`: of the session that the request is about, or its snapshot.
template <class Calls, class Response, class Result, class F>
grpc::ServerUnaryReactor* AnswerBy(grpc::CallbackServerContext* context, const Gate& gate,
                                   std::string_view method, CallNames names, Response* response,
                                   Reply<Result> /*tag*/, F start) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::StatusOr<AdmittedCall> call = gate.Admit(*context);
  if (!call.ok()) {
    reactor->Finish(ToGrpc(call.status()));
    return reactor;
  }
  CallRecord record(&call->frontend->options().calls, method, call->info);
  for (const std::string_view name : names) record.SetName(name);
  start(Calls(call->frontend), call->info,
        [reactor, response, method, record = std::move(record)](absl::StatusOr<Result> result) mutable {
          if (result.ok()) NoteResult(method, *result, &record);
          record.End(result.status(), MonotonicNow());
          if constexpr (std::is_same_v<Response, Result>) {
            if (result.ok()) *response = *std::move(result);
          } else {
            static_cast<void>(response);  // clang calls the capture unused
          }
          reactor->Finish(ToGrpc(result.status()));
        });
  return reactor;
}

template <class Response, class Result, class F>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const Gate& gate,
                                 std::string_view method, CallNames names, Response* response,
                                 Reply<Result> tag, F start) {
  return AnswerBy<SessionCalls>(context, gate, method, names, response, std::move(tag), std::move(start));
}

class AppendTurn final : public UnaryTurn {
 public:
  static AppendTurn* Start(const absl::StatusOr<AdmittedCall>& admitted,
                           const v1::AppendSessionRequest* request, v1::AppendSessionResponse* response) {
    const AdmittedCall call = admitted.value_or(AdmittedCall());
    auto turn = std::make_shared<AppendTurn>(call.frontend, call.info.owner, response);
    turn->Own(turn, call.info.deadline);
    if (admitted.ok()) {
      turn->Record(call, "AppendSession", request->name(), request->prompt());
      call.frontend->Append(*request, call.info, turn);
    } else {
      turn->OnRefused(admitted.status());
    }
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
  return Answer(context, gate_, "CreateSession", {SessionName(request->session_id())}, response,
                Reply<v1::Session>(), [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.Create(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::GetSession(grpc::CallbackServerContext* context,
                                                      const v1::GetSessionRequest* request,
                                                      v1::Session* response) {
  return Answer(context, gate_, "GetSession", {request->name()}, response, Reply<v1::Session>(),
                [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.Get(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::ListSessions(grpc::CallbackServerContext* context,
                                                        const v1::ListSessionsRequest* request,
                                                        v1::ListSessionsResponse* response) {
  return Answer(context, gate_, "ListSessions", {}, response, Reply<v1::ListSessionsResponse>(),
                [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.List(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::DeleteSession(grpc::CallbackServerContext* context,
                                                         const v1::DeleteSessionRequest* request,
                                                         google::protobuf::Empty* response) {
  return Answer(context, gate_, "DeleteSession", {request->name()}, response, Reply<v1::Session>(),
                [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.Delete(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::AppendSession(grpc::CallbackServerContext* context,
                                                         const v1::AppendSessionRequest* request,
                                                         v1::AppendSessionResponse* response) {
  absl::StatusOr<AdmittedCall> call = gate_.Admit(*context);
  if (!call.ok() || request->request_id().empty())
    return AppendTurn::Start(std::move(call), request, response);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  call->frontend->AppendOnce(*request, std::move(call->info),
                             [reactor, response](absl::StatusOr<v1::AppendSessionResponse> result) {
                               if (result.ok()) *response = *std::move(result);
                               reactor->Finish(ToGrpc(result.status()));
                             });
  return reactor;
}

grpc::ServerUnaryReactor* SessionsService::ForkSession(grpc::CallbackServerContext* context,
                                                       const v1::ForkSessionRequest* request,
                                                       v1::Session* response) {
  return Answer(context, gate_, "ForkSession", {request->name()}, response, Reply<v1::Session>(),
                [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.Fork(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::UpdateSession(grpc::CallbackServerContext* context,
                                                         const v1::UpdateSessionRequest* request,
                                                         v1::Session* response) {
  return Answer(context, gate_, "UpdateSession", {request->session().name()}, response, Reply<v1::Session>(),
                [&](SessionCalls calls, const CallInfo& call, auto reply) {
                  calls.Update(*request, call, std::move(reply));
                });
}

grpc::ServerUnaryReactor* SessionsService::CreateSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::CreateSnapshotRequest* request,
                                                          v1::Snapshot* response) {
  return AnswerBy<SnapshotCalls>(context, gate_, "CreateSnapshot", {request->parent()}, response,
                                 Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, const CallInfo& call, auto reply) {
                                   calls.Create(*request, call, std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::GetSnapshot(grpc::CallbackServerContext* context,
                                                       const v1::GetSnapshotRequest* request,
                                                       v1::Snapshot* response) {
  return AnswerBy<SnapshotCalls>(context, gate_, "GetSnapshot", {request->name()}, response,
                                 Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, const CallInfo& call, auto reply) {
                                   calls.Get(*request, call, std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::ListSnapshots(grpc::CallbackServerContext* context,
                                                         const v1::ListSnapshotsRequest* request,
                                                         v1::ListSnapshotsResponse* response) {
  return AnswerBy<SnapshotCalls>(context, gate_, "ListSnapshots", {request->parent()}, response,
                                 Reply<v1::ListSnapshotsResponse>(),
                                 [&](SnapshotCalls calls, const CallInfo& call, auto reply) {
                                   calls.List(*request, call, std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::DeleteSnapshot(grpc::CallbackServerContext* context,
                                                          const v1::DeleteSnapshotRequest* request,
                                                          google::protobuf::Empty* response) {
  return AnswerBy<SnapshotCalls>(context, gate_, "DeleteSnapshot", {request->name()}, response,
                                 Reply<v1::Snapshot>(),
                                 [&](SnapshotCalls calls, const CallInfo& call, auto reply) {
                                   calls.Delete(*request, call, std::move(reply));
                                 });
}

grpc::ServerUnaryReactor* SessionsService::RollbackSession(grpc::CallbackServerContext* context,
                                                           const v1::RollbackSessionRequest* request,
                                                           v1::Session* response) {
  return AnswerBy<SnapshotCalls>(context, gate_, "RollbackSession", {request->snapshot(), request->name()},
                                 response, Reply<v1::Session>(),
                                 [&](SnapshotCalls calls, const CallInfo& call, auto reply) {
                                   calls.Rollback(*request, call, std::move(reply));
                                 });
}

grpc::ServerWriteReactor<v1::ExportSessionResponse>* SessionsService::ExportSession(
    grpc::CallbackServerContext* context, const v1::ExportSessionRequest* request) {
  return ExportReactor::Start(gate_.Admit(*context), &watch_, context, request);
}

grpc::ServerReadReactor<v1::ImportSessionRequest>* SessionsService::ImportSession(
    grpc::CallbackServerContext* context, v1::Session* response) {
  return ImportReactor::Start(gate_.Admit(*context), &watch_, response);
}

}  // namespace weir
