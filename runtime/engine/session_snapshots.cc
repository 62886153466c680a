// SessionTable: snapshots, rollback, export and import.
#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/session_table.h"

namespace weir {
namespace {

std::string SnapshotName(std::string_view session, std::string_view snapshot) {
  return fmt::format("sessions/{}/snapshots/{}", session, snapshot);
}

absl::Status NoSnapshot(std::string_view session, std::string_view snapshot) {
  return MakeError(absl::StatusCode::kNotFound, "SNAPSHOT_NOT_FOUND",
                   fmt::format("session {} has no snapshot {}", Quoted(session), Quoted(snapshot)),
                   {{"snapshot", SnapshotName(session, snapshot)}});
}

absl::Status NotFinite(const Session& session) {
  return MakeError(
      absl::StatusCode::kDataLoss, "STATE_CORRUPT",
      fmt::format("the state of session '{}' is not finite any more; roll it back to a snapshot, "
                  "or delete it",
                  session.id),
      {{"session", fmt::format("sessions/{}", session.id)}});
}

// A step writes one piece of the image's body; true when all of it is written.
auto WriteInPieces(std::shared_ptr<const SnapshotImage> image, BodyWriter writer) {
  return [image = std::move(image), writer]() mutable -> absl::StatusOr<bool> {
    const char* const at = image->body.get() + (image->header.body_bytes - writer.remaining());
    WEIR_RETURN_IF_ERROR(writer.Write(at, std::min(writer.remaining(), kCopyBytes)));
    return writer.remaining() == 0;
  };
}

}  // namespace

absl::StatusOr<Session*> SessionTable::FindIdle(std::string_view id, std::string_view owner,
                                                std::string_view etag) {
  WEIR_ASSIGN_OR_RETURN(Session * session, Find(id, owner));
  WEIR_RETURN_IF_ERROR(CheckIdleAndEtag(*session, etag));
  return session;
}

SnapshotInfo SessionTable::Info(const Session& session, std::string_view id,
                                const Session::Snapshot& snapshot) const {
  SnapshotInfo info;
  info.session = session.id;
  info.id = id;
  info.position = snapshot.image->header.position();
  info.state_bytes = snapshot.image->claim.bytes();
  info.create_time = snapshot.create_time;
  return info;
}

absl::StatusOr<PiecewiseWork<SnapshotInfo>> SessionTable::CreateSnapshot(std::string_view id,
                                                                         std::string_view owner,
                                                                         std::string_view etag,
                                                                         std::string_view snapshot) {
  WEIR_ASSIGN_OR_RETURN(Session * session, FindIdle(id, owner, etag));
  if (session->snapshots.find(snapshot) != session->snapshots.end())
    return MakeError(
        absl::StatusCode::kAlreadyExists, "SNAPSHOT_EXISTS",
        fmt::format("session '{}' has a snapshot {} already; choose another id or leave it empty",
                    session->id, Quoted(snapshot)),
        {{"snapshot", SnapshotName(id, snapshot)}});
  if (session->sequence.corrupt) return NotFinite(*session);
  auto image = std::make_shared<SnapshotImage>();
  image->header = MakeSnapshotHeader(shape_, session->sequence);
  const int64_t body_bytes = image->header.body_bytes;
  const int64_t bytes = SnapshotImage::Bytes(body_bytes);
  std::optional<MemoryClaim> claim = snapshot_budget_.Claim(bytes);
  if (!claim)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "SNAPSHOT_MEMORY_EXHAUSTED",
        fmt::format("a snapshot of session '{}' takes {} bytes, and {} of {} are in use; delete "
                    "snapshots, or start the server with more --snapshot-memory",
                    session->id, bytes, snapshot_budget_.used(), snapshot_budget_.limit()),
        {{"state_bytes", std::to_string(bytes)}, {"capacity", std::to_string(snapshot_budget_.limit())}});
  image->claim = *std::move(claim);
  image->body.reset(new char[static_cast<size_t>(body_bytes)]);
  session->busy = true;
  auto reader = std::make_unique<BodyReader>(session->sequence, io_);
  PiecewiseWork<SnapshotInfo> work;
  work.step = [image, body_bytes, reader = std::move(reader)]() -> absl::StatusOr<bool> {
    char* const at = image->body.get() + (body_bytes - reader->remaining());
    WEIR_RETURN_IF_ERROR(reader->Read(at, std::min(reader->remaining(), kCopyBytes)));
    return reader->remaining() == 0;
  };
  work.finish = [this, session, image, name = std::string(snapshot)](absl::Time now) {
    session->busy = false;
    Touch(session, now);
    const auto entry = session->snapshots.emplace(name, Session::Snapshot{now, image}).first;
    return Info(*session, name, entry->second);
  };
  return work;
}

absl::StatusOr<SnapshotInfo> SessionTable::GetSnapshot(std::string_view id, std::string_view owner,
                                                       std::string_view snapshot) {
  WEIR_ASSIGN_OR_RETURN(const Session* session, Find(id, owner));
  const auto it = session->snapshots.find(snapshot);
  if (it == session->snapshots.end()) return NoSnapshot(id, snapshot);
  return Info(*session, snapshot, it->second);
}

absl::StatusOr<std::vector<SnapshotInfo>> SessionTable::ListSnapshots(std::string_view id,
                                                                      std::string_view owner,
                                                                      std::string_view after, int limit) {
  WEIR_ASSIGN_OR_RETURN(const Session* session, Find(id, owner));
  std::vector<SnapshotInfo> all;
  for (auto it = session->snapshots.upper_bound(after); it != session->snapshots.end() && limit > 0;
       ++it, --limit)
    all.push_back(Info(*session, it->first, it->second));
  return all;
}

absl::StatusOr<SnapshotInfo> SessionTable::DeleteSnapshot(std::string_view id, std::string_view owner,
                                                          std::string_view snapshot) {
  WEIR_ASSIGN_OR_RETURN(Session * session, Find(id, owner));
  const auto it = session->snapshots.find(snapshot);
  if (it == session->snapshots.end()) return NoSnapshot(id, snapshot);
  SnapshotInfo info = Info(*session, snapshot, it->second);
  garbage_.push_back(std::move(it->second.image));
  session->snapshots.erase(it);
  return info;
}

absl::StatusOr<PiecewiseWork<SessionInfo>> SessionTable::Rollback(std::string_view id, std::string_view owner,
                                                                  std::string_view etag,
                                                                  std::string_view snapshot) {
  WEIR_ASSIGN_OR_RETURN(Session * session, FindIdle(id, owner, etag));
  const auto it = session->snapshots.find(snapshot);
  if (it == session->snapshots.end()) return NoSnapshot(id, snapshot);
  const std::shared_ptr<const SnapshotImage> image = it->second.image;
  Sequence& sequence = session->sequence;
  if (shape_.block_bytes > 0) {
    const int64_t position = image->header.position();
    if (!sequence.blocks.Reserve(&kv_, position))
      return MakeError(
          absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
          fmt::format("rolling session '{}' back to position {} needs {} KV blocks, it has {} and "
                      "{} are free; delete a session or retry later",
                      session->id, position, KvPool::BlocksFor(position), sequence.blocks.blocks().size(),
                      kv_.num_free()),
          {{"blocks", std::to_string(KvPool::BlocksFor(position))}, {"free", std::to_string(kv_.num_free())}},
          absl::Seconds(1));
    sequence.blocks.Truncate(position);
  }
  session->busy = true;
  PiecewiseWork<SessionInfo> work;
  work.step = WriteInPieces(image, BodyWriter(sequence, image->header.body_bytes, io_));
  work.finish = [this, session, image](absl::Time now) {
    RestoreSequence(image->header, &session->sequence);
    ++session->turns;
    session->busy = false;
    Touch(session, now);
    return Info(*session, /*with_recent_tokens=*/true);
  };
  return work;
}

absl::StatusOr<std::unique_ptr<SessionExport>> SessionTable::StartExport(std::string_view id,
                                                                         std::string_view owner,
                                                                         std::string_view etag) {
  WEIR_ASSIGN_OR_RETURN(Session * session, FindIdle(id, owner, etag));
  if (session->sequence.corrupt) return NotFinite(*session);
  SessionInfo info = Info(*session, /*with_recent_tokens=*/true);
  session->busy = true;
  return std::unique_ptr<SessionExport>(
      new SessionExport{session, std::move(info), SnapshotFileReader(shape_, session->sequence, io_)});
}

void SessionTable::EndExport(SessionExport* session_export, absl::Time now) {
  session_export->session->busy = false;
  Touch(session_export->session, now);
}

absl::StatusOr<PiecewiseWork<SessionInfo>> SessionTable::StartImport(
    Engine::CreateParams params, std::shared_ptr<const SnapshotImage> image) {
  PiecewiseWork<SessionInfo> work;
  work.claimed = std::make_unique<Sequence>();
  Sequence* const sequence = work.claimed.get();
  WEIR_ASSIGN_OR_RETURN(*sequence, SequenceIn(arena_.ClaimToOverwrite()));
  const SnapshotHeader& header = image->header;
  if (shape_.block_bytes > 0 && !sequence->blocks.Reserve(&kv_, header.position()))
    return MakeError(
        absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
        fmt::format("the session needs {} KV blocks of {} bytes, {} are free; delete a session or "
                    "start the server with more --kv-memory",
                    KvPool::BlocksFor(header.position()), kv_.block_bytes(), kv_.num_free()),
        {{"blocks", std::to_string(KvPool::BlocksFor(header.position()))},
         {"free", std::to_string(kv_.num_free())}},
        absl::Seconds(1));
  work.step = WriteInPieces(image, BodyWriter(*sequence, header.body_bytes, io_));
  work.finish = [this, image, sequence, params = std::move(params)](absl::Time now) {
    RestoreSequence(image->header, sequence);
    return Insert(params, std::move(*sequence), now);
  };
  return work;
}

}  // namespace weir
