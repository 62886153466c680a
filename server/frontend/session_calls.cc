#include "server/frontend/session_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "server/frontend/names.h"
#include "server/frontend/validate.h"

namespace weir {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;

}  // namespace

void SetTimestamp(absl::Time time, google::protobuf::Timestamp* out) {
  const absl::Duration since_epoch = ToWallTime(time) - absl::UnixEpoch();
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(since_epoch, absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

std::string RequireSession(std::string_view field, const std::string& name, const CallInfo& call,
                           FieldViolations* violations) {
  const std::optional<std::string> id = SessionIdOf(name);
  if (!id) {
    violations->Add(field, fmt::format("{} is not of the form sessions/{}", Quoted(name), kIdPattern));
    return "";
  }
  CheckSessionHint(call.session_hint, *id, violations);
  return *id;
}

std::string ChooseId(std::string_view field, const std::string& requested, FieldViolations* violations) {
  if (requested.empty()) return RandomId();
  if (!IsValidId(requested))
    violations->Add(field, fmt::format("{} does not match {}", Quoted(requested), kIdPattern));
  return requested;
}

std::string ChooseSessionId(const std::string& requested, const CallInfo& call, FieldViolations* violations) {
  // A client that routes by metadata has chosen its id there.
  if (requested.empty() && !call.session_hint.empty())
    return ChooseId("session_id", SessionIdOf(call.session_hint).value_or(call.session_hint), violations);
  std::string id = ChooseId("session_id", requested, violations);
  CheckSessionHint(call.session_hint, id, violations);
  return id;
}

absl::Duration ReadTtl(const v1::Session& session, absl::Duration max, FieldViolations* violations) {
  const std::string bound = fmt::format("the longest time that this server allows, {} (--max-session-ttl)",
                                        absl::FormatDuration(max));
  if (session.has_ttl()) {
    const absl::Duration ttl =
        ReadDuration(session.ttl(), "session.ttl", violations).value_or(absl::ZeroDuration());
    if (ttl > max)
      violations->Add("session.ttl", fmt::format("{} is more than {}", absl::FormatDuration(ttl), bound));
    return ttl;
  }
  if (!session.has_expire_time()) return absl::ZeroDuration();
  const absl::Time expires = absl::FromUnixSeconds(session.expire_time().seconds()) +
                             absl::Nanoseconds(session.expire_time().nanos());
  const absl::Duration ttl = FromWallTime(expires) - MonotonicNow();
  if (ttl <= absl::ZeroDuration()) violations->Add("session.expire_time", "is not in the future");
  if (ttl > max) violations->Add("session.expire_time", "lies further ahead than " + bound);
  return ttl;
}

int PageSize(int32_t page_size, FieldViolations* violations) {
  if (page_size < 0) violations->Add("page_size", "must not be negative");
  return page_size <= 0 ? kDefaultPage : std::min(page_size, kMaxPage);
}

v1::Session SessionToProto(const SessionInfo& info, const Frontend& frontend) {
  v1::Session session;
  session.set_name(SessionName(info.id));
  session.set_model(ModelName(frontend.models()[info.model].name));
  SetTimestamp(info.create_time, session.mutable_create_time());
  SetTimestamp(info.expire_time, session.mutable_expire_time());
  session.set_etag(info.etag);
  session.set_position(info.position);
  session.set_state_bytes(info.state_bytes);
  session.set_export_bytes(info.export_bytes);
  session.set_snapshot_bytes(info.snapshot_bytes);
  session.set_busy(info.busy);
  session.mutable_recent_token_ids()->Assign(info.recent_tokens.begin(), info.recent_tokens.end());
  session.set_owner(info.owner);
  return session;
}

Done<SessionInfo> SessionCalls::ReplyWithSession(Reply<v1::Session> reply) const {
  return [this_frontend = &frontend_, reply = std::move(reply)](absl::StatusOr<SessionInfo> info) mutable {
    if (!info.ok()) return reply(info.status());
    reply(SessionToProto(*info, *this_frontend));
  };
}

void SessionCalls::Create(const v1::CreateSessionRequest& request, const CallInfo& call,
                          Reply<v1::Session> reply) {
  FieldViolations violations;
  Engine::CreateParams params;
  params.id = ChooseSessionId(request.session_id(), call, &violations);
  params.owner = call.owner;
  params.ttl = ReadTtl(request.session(), frontend_.engine().options().max_ttl, &violations);
  const absl::StatusOr<int> model = frontend_.ResolveModel(request.session().model(), "session.model");
  for (const FieldViolation& v : GetFieldViolations(model.status())) violations.Add(v.field, v.description);
  CheckRequestId(request.request_id(), &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  if (!model.ok()) return reply(model.status());
  params.model = *model;
  const auto create = [this_frontend = &frontend_, params = std::move(params)](Reply<v1::Session> done) {
    this_frontend->engine().CreateSession(params,
                                          SessionCalls(this_frontend).ReplyWithSession(std::move(done)));
  };
  if (request.request_id().empty()) return create(std::move(reply));
  frontend_.request_log().Run<v1::Session>(
      request, request.request_id(), call.owner, std::move(reply),
      [&](RequestLog::Finish<v1::Session> finish) {
        // A refusal has no effect, so a repeat may try again.
        create([finish = std::move(finish)](absl::StatusOr<v1::Session> session) mutable {
          const bool remember = session.ok();
          finish(std::move(session), remember);
        });
      });
}

void SessionCalls::Get(const v1::GetSessionRequest& request, const CallInfo& call, Reply<v1::Session> reply) {
  FieldViolations violations;
  std::string id = RequireSession("name", request.name(), call, &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().GetSession(std::move(id), call.owner, ReplyWithSession(std::move(reply)));
}

void SessionCalls::List(const v1::ListSessionsRequest& request, const CallInfo& call,
                        Reply<v1::ListSessionsResponse> reply) {
  FieldViolations violations;
  const int page_size = PageSize(request.page_size(), &violations);
  // The token is the last id of the page before: ids are ordered, so pages neither repeat nor skip.
  if (!request.page_token().empty() && !IsValidId(request.page_token()))
    violations.Add("page_token", "is not one that this server gave out");
  if (!violations.empty()) return reply(violations.ToStatus());
  // One more than the page, to know whether another follows.
  frontend_.engine().ListSessions(call.owner, request.page_token(), page_size + 1,
                                  [frontend = &frontend_, page_size, reply = std::move(reply)](
                                      absl::StatusOr<std::vector<SessionInfo>> sessions) mutable {
                                    if (!sessions.ok()) return reply(sessions.status());
                                    v1::ListSessionsResponse response;
                                    const size_t shown =
                                        std::min(sessions->size(), static_cast<size_t>(page_size));
                                    for (size_t i = 0; i < shown; ++i)
                                      *response.add_sessions() = SessionToProto((*sessions)[i], *frontend);
                                    if (sessions->size() > shown)
                                      response.set_next_page_token((*sessions)[shown - 1].id);
                                    reply(std::move(response));
                                  });
}

void SessionCalls::Delete(const v1::DeleteSessionRequest& request, const CallInfo& call,
                          Reply<v1::Session> reply) {
  FieldViolations violations;
  std::string id = RequireSession("name", request.name(), call, &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().DeleteSession(std::move(id), call.owner, request.etag(),
                                   ReplyWithSession(std::move(reply)));
}

void SessionCalls::Fork(const v1::ForkSessionRequest& request, const CallInfo& call,
                        Reply<v1::Session> reply) {
  FieldViolations violations;
  std::string child = request.session_id().empty()
                          ? RandomForkId(SessionIdOf(request.name()).value_or(""))
                          : ChooseId("session_id", request.session_id(), &violations);
  CallInfo parent_call = call;
  // A router may have been told the child's name: that is where later calls will look for it.
  if (SessionIdOf(call.session_hint).value_or(call.session_hint) == child) parent_call.session_hint.clear();
  std::string parent = RequireSession("name", request.name(), parent_call, &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().ForkSession(std::move(parent), call.owner, request.etag(), std::move(child),
                                 ReplyWithSession(std::move(reply)));
}

void SessionCalls::Update(const v1::UpdateSessionRequest& request, const CallInfo& call,
                          Reply<v1::Session> reply) {
  FieldViolations violations;
  const v1::Session& session = request.session();
  std::string id = RequireSession("session.name", session.name(), call, &violations);
  const absl::Duration ttl = ReadTtl(session, frontend_.engine().options().max_ttl, &violations);
  const bool any_set = session.has_ttl() || session.has_expire_time();
  for (const std::string& path : request.update_mask().paths()) {
    if (path != "ttl" && path != "expire_time" && path != "*")
      violations.Add("update_mask",
                     fmt::format("{} cannot be changed; ttl and expire_time can", Quoted(path)));
    if ((path == "ttl" && session.has_expire_time()) || (path == "expire_time" && session.has_ttl()))
      violations.Add("update_mask", fmt::format("names {}, and the session has the other one", path));
  }
  if (request.update_mask().paths().empty() && !any_set)
    violations.Add("session.ttl", "set ttl or expire_time: there is nothing else to change");
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().UpdateSession(std::move(id), call.owner, session.etag(), ttl,
                                   ReplyWithSession(std::move(reply)));
}

}  // namespace weir
