// SessionCalls: the methods of weir.v1.Sessions but for Append, which is a turn.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/frontend/frontend.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

template <class Response>
using Reply = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

// Stateless; each method returns at once and calls `reply` once, on the notifier's thread or before it
// returns. The request is not needed afterwards.
class SessionCalls {
 public:
  explicit SessionCalls(Frontend* frontend) : frontend_(*frontend) {}

  void Create(const v1::CreateSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);
  void Get(const v1::GetSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);
  void List(const v1::ListSessionsRequest& request, const CallInfo& call,
            Reply<v1::ListSessionsResponse> reply);
  void Delete(const v1::DeleteSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);
  void Fork(const v1::ForkSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);

 private:
  Done<SessionInfo> ReplyWithSession(Reply<v1::Session> reply) const;

  Frontend& frontend_;
};

v1::Session SessionToProto(const SessionInfo& info, const Frontend& frontend);

// The page to show: `page_size` or the default, capped; a violation when negative.
int PageSize(int32_t page_size, FieldViolations* violations);

}  // namespace weir
