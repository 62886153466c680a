#include "server/frontend/snapshot_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "server/frontend/names.h"
#include "server/frontend/session_calls.h"

namespace weir {
namespace {

v1::Snapshot SnapshotToProto(const SnapshotInfo& info) {
  v1::Snapshot snapshot;
  snapshot.set_name(SnapshotName(info.session, info.id));
  SetTimestamp(info.create_time, snapshot.mutable_create_time());
  snapshot.set_position(info.position);
  snapshot.set_state_bytes(info.state_bytes);
  return snapshot;
}

Done<SnapshotInfo> ReplyWithSnapshot(Reply<v1::Snapshot> reply) {
  return [reply = std::move(reply)](absl::StatusOr<SnapshotInfo> info) mutable {
    if (!info.ok()) return reply(info.status());
    reply(SnapshotToProto(*info));
  };
}

SnapshotIds RequireSnapshot(std::string_view field, const std::string& name, const CallInfo& call,
                            FieldViolations* violations) {
  std::optional<SnapshotIds> ids = SnapshotIdsOf(name);
  if (!ids) {
    violations->Add(field, fmt::format("{} is not of the form sessions/{{session}}/snapshots/{{snapshot}}",
                                       Quoted(name)));
    return {};
  }
  CheckSessionHint(call.session_hint, ids->session, violations);
  return *std::move(ids);
}

}  // namespace

void SnapshotCalls::Create(const v1::CreateSnapshotRequest& request, const CallInfo& call,
                           Reply<v1::Snapshot> reply) {
  FieldViolations violations;
  std::string session = RequireSession("parent", request.parent(), call, &violations);
  std::string id = ChooseId("snapshot_id", request.snapshot_id(), &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().CreateSnapshot(std::move(session), call.owner, request.etag(), std::move(id),
                                    ReplyWithSnapshot(std::move(reply)));
}

void SnapshotCalls::Get(const v1::GetSnapshotRequest& request, const CallInfo& call,
                        Reply<v1::Snapshot> reply) {
  FieldViolations violations;
  SnapshotIds ids = RequireSnapshot("name", request.name(), call, &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().GetSnapshot(std::move(ids.session), call.owner, std::move(ids.snapshot),
                                 ReplyWithSnapshot(std::move(reply)));
}

void SnapshotCalls::List(const v1::ListSnapshotsRequest& request, const CallInfo& call,
                         Reply<v1::ListSnapshotsResponse> reply) {
  FieldViolations violations;
  std::string session = RequireSession("parent", request.parent(), call, &violations);
  const int page_size = PageSize(request.page_size(), &violations);
  // As with sessions, the token is the last id of the page before.
  if (!request.page_token().empty() && !IsValidId(request.page_token()))
    violations.Add("page_token", "is not one that this server gave out");
  if (!violations.empty()) return reply(violations.ToStatus());
  auto done = [page_size,
               reply = std::move(reply)](absl::StatusOr<std::vector<SnapshotInfo>> snapshots) mutable {
    if (!snapshots.ok()) return reply(snapshots.status());
    v1::ListSnapshotsResponse response;
    const size_t shown = std::min(snapshots->size(), static_cast<size_t>(page_size));
    for (size_t i = 0; i < shown; ++i) *response.add_snapshots() = SnapshotToProto((*snapshots)[i]);
    if (snapshots->size() > shown) response.set_next_page_token((*snapshots)[shown - 1].id);
    reply(std::move(response));
  };
  frontend_.engine().ListSnapshots(std::move(session), call.owner, request.page_token(), page_size + 1,
                                   std::move(done));
}

void SnapshotCalls::Delete(const v1::DeleteSnapshotRequest& request, const CallInfo& call,
                           Reply<v1::Snapshot> reply) {
  FieldViolations violations;
  SnapshotIds ids = RequireSnapshot("name", request.name(), call, &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  frontend_.engine().DeleteSnapshot(std::move(ids.session), call.owner, std::move(ids.snapshot),
                                    ReplyWithSnapshot(std::move(reply)));
}

void SnapshotCalls::Rollback(const v1::RollbackSessionRequest& request, const CallInfo& call,
                             Reply<v1::Session> reply) {
  FieldViolations violations;
  std::string session = RequireSession("name", request.name(), call, &violations);
  SnapshotIds ids = RequireSnapshot("snapshot", request.snapshot(), CallInfo(), &violations);
  if (!violations.empty()) return reply(violations.ToStatus());
  if (ids.session != session)
    return reply(
        MakeError(absl::StatusCode::kNotFound, "SNAPSHOT_NOT_FOUND",
                  fmt::format("{} is no snapshot of {}; a session rolls back to its own snapshots only",
                              Quoted(request.snapshot()), SessionName(session)),
                  {{"snapshot", request.snapshot()}}));
  frontend_.engine().RollbackSession(
      std::move(session), call.owner, request.etag(), std::move(ids.snapshot),
      [frontend = &frontend_, reply = std::move(reply)](absl::StatusOr<SessionInfo> info) mutable {
        if (!info.ok()) return reply(info.status());
        reply(SessionToProto(*info, *frontend));
      });
}

}  // namespace weir
