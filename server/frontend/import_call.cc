#include "server/frontend/import_call.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "server/frontend/session_calls.h"

namespace weir {

absl::Status ImportCall::Begin(const v1::ImportSessionRequest& message) {
  FieldViolations violations;
  params_.id = ChooseSessionId(message.session_id(), call_, &violations);
  params_.owner = call_.owner;
  params_.ttl = ReadTtl(message.session(), frontend_.engine().options().max_ttl, &violations);
  int model = -1;
  absl::Status not_found;
  if (!message.session().model().empty()) {
    const absl::StatusOr<int> resolved = frontend_.ResolveModel(message.session().model(), "session.model");
    for (const FieldViolation& v : GetFieldViolations(resolved.status()))
      violations.Add(v.field, v.description);
    if (resolved.ok())
      model = *resolved;
    else
      not_found = resolved.status();
  }
  if (message.total_bytes() <= 0) violations.Add("total_bytes", "must be the length of the file");
  if (!violations.empty()) return violations.ToStatus();
  WEIR_RETURN_IF_ERROR(not_found);
  Engine& engine = frontend_.engine();
  intake_.emplace(&engine.snapshot_shapes(), &engine.snapshot_budget(), model, message.total_bytes());
  return absl::OkStatus();
}

absl::Status ImportCall::Add(const v1::ImportSessionRequest& message) {
  absl::Status status = Take(message);
  frontend_.engine().metrics().rejections.AddIfOfCapacity(status);
  return status;
}

absl::Status ImportCall::Take(const v1::ImportSessionRequest& message) {
  if (frontend_.engine().draining())
    return MakeError(absl::StatusCode::kUnavailable, "DRAINING",
                     "the server is shutting down and takes no new sessions; another one may", {},
                     absl::Seconds(1));
  if (message.data().size() > kMaxDataBytes)
    return InvalidField("data", fmt::format("has {} bytes; a message takes at most {}", message.data().size(),
                                            kMaxDataBytes));
  if (!intake_)
    WEIR_RETURN_IF_ERROR(Begin(message));
  else if (message.has_session() || !message.session_id().empty() || message.total_bytes() != 0)
    return InvalidField("session_id", "session_id, session and total_bytes belong into the first message");
  return intake_->Add(message.data());
}

void ImportCall::Finish(Reply<v1::Session> reply) {
  if (!intake_) return reply(InvalidField("total_bytes", "no message came; the first one names the file"));
  absl::StatusOr<std::shared_ptr<SnapshotImage>> image = intake_->Finish();
  if (!image.ok()) return reply(image.status());
  params_.model = intake_->model();
  frontend_.engine().ImportSession(
      params_, *std::move(image),
      [frontend = &frontend_, reply = std::move(reply)](absl::StatusOr<SessionInfo> info) mutable {
        if (!info.ok()) return reply(info.status());
        reply(SessionToProto(*info, *frontend));
      });
}

}  // namespace weir
