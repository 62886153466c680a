// SessionTable: one model's sequence memory and the sessions that live in it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/sequence.h"
#include "runtime/engine/session_totals.h"
#include "runtime/engine/snapshot.h"

namespace weir {

class SessionTable;

// Work on a session's state in pieces of at most kCopyBytes; the session is busy from the start to finish().
template <class T>
struct PiecewiseWork {
  // Of a session that is still to be. What finish() leaves of it ends on the engine's thread; the rest of the
  // work may end on any.
  std::unique_ptr<Sequence> claimed;
  // True when nothing is left to copy. An error is the device's: nothing of the work is of use then.
  absl::AnyInvocable<absl::StatusOr<bool>()> step;
  absl::AnyInvocable<absl::StatusOr<T>(absl::Time now)> finish;  // once, after the last step
};

inline constexpr int64_t kCopyBytes = int64_t{1} << 20;

// A session on its way out; it is busy as long.
struct SessionExport {
  Session* session = nullptr;
  SessionInfo info;
  SnapshotFileReader reader;
};

// What the engine keeps of an export between two reads.
struct PendingExport {
  SessionTable* table = nullptr;
  std::unique_ptr<SessionExport> session;
};

// Ids are an owner's own: two owners may use the same one and neither learns of it. Ordered by owner, then
// id.
struct SessionKey {
  struct View {
    std::string_view owner;
    std::string_view id;
  };
  std::string owner;
  std::string id;

  operator View() const { return {owner, id}; }
  struct Less {
    using is_transparent = void;
    bool operator()(const View& a, const View& b) const {
      return std::tie(a.owner, a.id) < std::tie(b.owner, b.id);
    }
  };
};

struct SessionUse {
  int64_t sessions = 0;
  int64_t state_bytes = 0;
};

// Engine thread only.
class SessionTable {
 public:
  // `model_index` is what SessionInfo::model says.
  static absl::StatusOr<std::unique_ptr<SessionTable>> Create(int model_index, const EngineModel& model,
                                                              Device& device, const EngineOptions& options,
                                                              MemoryBudget* snapshot_budget);

  StateArena& arena() { return arena_; }
  KvPool& kv() { return kv_; }
  size_t size() const { return sessions_.size(); }

  // NOT_FOUND for what does not exist and for what belongs to somebody else alike.
  absl::StatusOr<Session*> Find(std::string_view id, std::string_view owner);
  bool Has(std::string_view id, std::string_view owner) const {
    return sessions_.find(SessionKey::View{owner, id}) != sessions_.end();
  }
  SessionInfo Info(const Session& session, bool with_recent_tokens) const;

  // What the slot and the blocks of `sequence` take.
  int64_t StateBytes(const Sequence& sequence) const;
  // What a session takes whose state holds `fed` tokens.
  int64_t StateBytes(int64_t fed) const { return shape_.BodyBytes(fed); }
  int64_t NewSnapshotBytes(const Session& session) const {
    return SnapshotImage::Bytes(shape_.BodyBytes(session.sequence.fed));
  }
  // What its snapshots take.
  int64_t SnapshotBytes(const Session& session) const;
  // What the sessions of `owner` and their snapshots hold here.
  SessionUse UseOf(std::string_view owner) const;

  absl::StatusOr<SessionInfo> Add(const Engine::CreateParams& params, absl::Time now);
  void List(std::string_view owner, std::string_view after, int limit, std::vector<SessionInfo>* out) const;
  absl::StatusOr<SessionInfo> Delete(std::string_view id, std::string_view owner, std::string_view etag);
  // The parent does not change.
  absl::StatusOr<SessionInfo> Fork(std::string_view id, std::string_view owner, std::string_view etag,
                                   std::string_view child, absl::Time now);
  // `ttl` zero: the default.
  absl::StatusOr<SessionInfo> Update(std::string_view id, std::string_view owner, std::string_view etag,
                                     absl::Duration ttl, absl::Time now);

  absl::StatusOr<PiecewiseWork<SnapshotInfo>> CreateSnapshot(std::string_view id, std::string_view owner,
                                                             std::string_view etag,
                                                             std::string_view snapshot);
  absl::StatusOr<SnapshotInfo> GetSnapshot(std::string_view id, std::string_view owner,
                                           std::string_view snapshot);
  absl::StatusOr<std::vector<SnapshotInfo>> ListSnapshots(std::string_view id, std::string_view owner,
                                                          std::string_view after, int limit);
  absl::StatusOr<SnapshotInfo> DeleteSnapshot(std::string_view id, std::string_view owner,
                                              std::string_view snapshot);
  // All that can fail does so before the first byte changes.
  absl::StatusOr<PiecewiseWork<SessionInfo>> Rollback(std::string_view id, std::string_view owner,
                                                      std::string_view etag, std::string_view snapshot);
  absl::StatusOr<std::unique_ptr<SessionExport>> StartExport(std::string_view id, std::string_view owner,
                                                             std::string_view etag);
  void EndExport(SessionExport* session_export, absl::Time now);
  // `image` is one that a SnapshotIntake has checked for this model.
  absl::StatusOr<PiecewiseWork<SessionInfo>> StartImport(Engine::CreateParams params,
                                                         std::shared_ptr<const SnapshotImage> image);

  // It was made, or a turn has ended: idle time counts from here, and the totals have it as it is now.
  void Touch(Session* session, absl::Time now) {
    session->expire_time = now + session->ttl;
    const Sequence& sequence = session->sequence;
    totals_.Count(sequence.slot.index(), {sequence.position(), StateBytes(sequence)});
  }
  SessionTotals& totals() { return totals_; }
  // Ends idle sessions whose time is over; busy ones stay.
  void Expire(absl::Time now);
  absl::Time NextExpiry() const;

  // Snapshots that ended since the last call. Freeing hundreds of megabytes takes milliseconds, so somebody
  // else than the engine's thread is to do it.
  std::vector<std::shared_ptr<const SnapshotImage>> TakeGarbage() { return std::exchange(garbage_, {}); }

  // An empty sequence in a fresh slot, or RESOURCE_EXHAUSTED naming the bytes.
  absl::StatusOr<Sequence> NewSequence() { return SequenceIn(arena_.Claim()); }

 private:
  SessionTable(int model_index, const EngineModel& model, const EngineOptions& options, StateArena arena,
               KvPool kv, HostBuffer staging, Stream* stream, MemoryBudget* snapshot_budget)
      : model_index_(model_index),
        model_(model),
        options_(options),
        shape_(SnapshotShape::Of(model)),
        snapshot_budget_(*snapshot_budget),
        arena_(std::move(arena)),
        kv_(std::move(kv)),
        io_(&arena_, &kv_, stream, std::move(staging)) {}
  SnapshotInfo Info(const Session& session, std::string_view id, const Session::Snapshot& snapshot) const;
  absl::StatusOr<Session*> FindIdle(std::string_view id, std::string_view owner, std::string_view etag);
  absl::StatusOr<Sequence> SequenceIn(std::optional<StateSlot> slot) const;  // nullopt: none is free
  void Discard(Session* session);
  absl::Duration UsableTtl(absl::Duration ttl) const;
  absl::StatusOr<SessionInfo> Insert(const Engine::CreateParams& params, Sequence sequence, absl::Time now);

  const int model_index_;
  const EngineModel& model_;
  const EngineOptions& options_;
  const SnapshotShape shape_;
  MemoryBudget& snapshot_budget_;
  StateArena arena_;
  KvPool kv_;
  StateIo io_;
  SessionTotals totals_;
  absl::Time next_sweep_ = absl::InfinitePast();
  std::vector<std::shared_ptr<const SnapshotImage>> garbage_;
  std::map<SessionKey, std::unique_ptr<Session>, SessionKey::Less> sessions_;
};

// Refuses when the caller's etag is out of date.
absl::Status CheckEtag(const Session& session, std::string_view etag);
// The same, and when the session is busy.
absl::Status CheckIdleAndEtag(const Session& session, std::string_view etag);

}  // namespace weir
