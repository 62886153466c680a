// SessionCalls: the methods of weir.v1.Sessions that make, show and end sessions.
#pragma once

#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "google/protobuf/timestamp.pb.h"
#include "server/frontend/frontend.h"
#include "weir/v1/sessions.pb.h"

namespace weir {

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
  void Update(const v1::UpdateSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply);

 private:
  Done<SessionInfo> ReplyWithSession(Reply<v1::Session> reply) const;

  Frontend& frontend_;
};

// `time` is one of MonotonicNow(); what is set is the wall clock's.
void SetTimestamp(absl::Time time, google::protobuf::Timestamp* out);

v1::Session SessionToProto(const SessionInfo& info, const Frontend& frontend);

// The page to show: `page_size` or the default, capped; a violation when negative.
int PageSize(int32_t page_size, FieldViolations* violations);

// The id in `name`, which has to be a session's and what the routing metadata names; "" and a violation of
// `field` otherwise.
std::string RequireSession(std::string_view field, const std::string& name, const CallInfo& call,
                           FieldViolations* violations);
// The id of something to be made: the caller's choice, or a random one.
std::string ChooseId(std::string_view field, const std::string& requested, FieldViolations* violations);
// For a session to be made: a routing hint is a choice, too.
std::string ChooseSessionId(const std::string& requested, const CallInfo& call, FieldViolations* violations);
// Zero where the caller leaves it to the server.
absl::Duration ReadTtl(const v1::Session& session, absl::Duration max, FieldViolations* violations);

}  // namespace weir
