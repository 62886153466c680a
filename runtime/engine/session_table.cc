#include "runtime/engine/session_table.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device_errors.h"

namespace weir {
namespace {

// Sessions outlive their time by at most this; looking at each of them in every step would cost.
constexpr absl::Duration kSweepInterval = absl::Milliseconds(100);

std::string ResourceName(std::string_view id) { return fmt::format("sessions/{}", id); }

ErrorMetadata ErrorMetadataOf(const Session& session) {
  return {{"session", ResourceName(session.id)}, {"position", std::to_string(session.sequence.position())}};
}

}  // namespace

absl::Status CheckEtag(const Session& session, std::string_view etag) {
  if (etag.empty() || etag == session.etag()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kAborted, "ETAG_MISMATCH",
                   fmt::format("session '{}' has changed: its etag is now '{}', position {}; read it again",
                               session.id, session.etag(), session.sequence.position()),
                   ErrorMetadataOf(session));
}

absl::Status CheckIdleAndEtag(const Session& session, std::string_view etag) {
  if (!session.busy) return CheckEtag(session, etag);
  return MakeError(absl::StatusCode::kAborted, "SESSION_BUSY",
                   fmt::format("session '{}' has a turn in progress, or its state is being copied; wait for "
                               "that or cancel it",
                               session.id),
                   ErrorMetadataOf(session));
}

absl::StatusOr<std::unique_ptr<SessionTable>> SessionTable::Create(int model_index, const EngineModel& model,
                                                                   Device& device,
                                                                   const EngineOptions& options,
                                                                   MemoryBudget* snapshot_budget) {
  const RunnerLimits& limits = model.limits;
  const std::vector<StateSpec> states = model.model->States();
  const PagedSpec paged = model.model->Paged();
  absl::StatusOr<StateArena> arena = StateArena::Create(states, limits.slots, device);
  if (!arena.ok())
    return DoesNotFit(
        arena.status(), model.name,
        fmt::format("{} slots of {} bytes of state", limits.slots, StateArena::SlotBytes(states)),
        "give the states less --state-memory, or ask for fewer --slots");
  absl::StatusOr<KvPool> kv = KvPool::Create(paged, limits.kv_blocks, device);
  if (!kv.ok())
    return DoesNotFit(
        kv.status(), model.name,
        fmt::format("{} KV blocks of {} bytes", limits.kv_blocks, paged.block_bytes(kKvBlockTokens)),
        "give the caches less --kv-memory");
  WEIR_ASSIGN_OR_RETURN(HostBuffer staging, StateIo::AllocateStaging(device));
  return std::unique_ptr<SessionTable>(new SessionTable(model_index, model, options, *std::move(arena),
                                                        *std::move(kv), std::move(staging), &device.stream(),
                                                        snapshot_budget));
}

absl::StatusOr<Session*> SessionTable::Find(std::string_view id, std::string_view owner) {
  const auto it = sessions_.find(SessionKey::View{owner, id});
  if (it == sessions_.end())
    return MakeError(absl::StatusCode::kNotFound, "SESSION_NOT_FOUND",
                     fmt::format("no session {}; it may have expired: create it again", Quoted(id)),
                     {{"session", ResourceName(id)}});
  return it->second.get();
}

int64_t SessionTable::StateBytes(const Sequence& sequence) const {
  return arena_.slot_bytes() + static_cast<int64_t>(sequence.blocks.blocks().size()) * kv_.block_bytes();
}

int64_t SessionTable::SnapshotBytes(const Session& session) const {
  int64_t bytes = 0;
  for (const auto& [id, snapshot] : session.snapshots) bytes += snapshot.image->claim.bytes();
  return bytes;
}

SessionInfo SessionTable::Info(const Session& session, bool with_recent_tokens) const {
  SessionInfo info;
  info.id = session.id;
  info.model = model_index_;
  info.owner = session.owner;
  info.etag = session.etag();
  info.position = session.sequence.position();
  info.state_bytes = StateBytes(session.sequence);
  info.export_bytes = shape_.FileBytes(session.sequence.fed);
  info.snapshot_bytes = SnapshotBytes(session);
  info.busy = session.busy;
  info.create_time = session.create_time;
  info.expire_time = session.expire_time;
  if (with_recent_tokens) {
    const TokenHistory& history = session.sequence.history;
    for (uint32_t age = history.size; age-- > 0;) info.recent_tokens.push_back(history.IdAt(age));
  }
  return info;
}

absl::StatusOr<Sequence> SessionTable::SequenceIn(std::optional<StateSlot> slot) const {
  if (!slot)
    return MakeError(
        absl::StatusCode::kResourceExhausted, "SESSION_CAPACITY_EXHAUSTED",
        fmt::format("all {} slots of model '{}' are in use{}; delete a session, wait for one to expire, or "
                    "start the server with more --slots",
                    arena_.num_slots(), model_.name,
                    arena_.slot_bytes() > 0 ? fmt::format(" ({} bytes each)", arena_.slot_bytes()) : ""),
        {{"state_bytes", std::to_string(arena_.slot_bytes())},
         {"capacity", std::to_string(arena_.num_slots())}},
        absl::Seconds(1));
  Sequence sequence;
  sequence.slot = *std::move(slot);
  return sequence;
}

absl::Duration SessionTable::UsableTtl(absl::Duration ttl) const {
  return ttl > absl::ZeroDuration() ? std::min(ttl, options_.max_ttl) : options_.default_ttl;
}

absl::StatusOr<SessionInfo> SessionTable::Insert(const Engine::CreateParams& params, Sequence sequence,
                                                 absl::Time now) {
  auto session = std::make_unique<Session>();
  session->id = params.id;
  session->owner = params.owner;
  session->sequence = std::move(sequence);
  session->create_time = now;
  session->ttl = UsableTtl(params.ttl);
  Touch(session.get(), now);
  const SessionInfo info = Info(*session, true);
  sessions_.emplace(SessionKey{params.owner, params.id}, std::move(session));
  return info;
}

SessionUse SessionTable::UseOf(std::string_view owner) const {
  SessionUse use;
  for (auto it = sessions_.lower_bound(SessionKey::View{owner, ""});
       it != sessions_.end() && it->first.owner == owner; ++it) {
    ++use.sessions;
    use.state_bytes += StateBytes(it->second->sequence) + SnapshotBytes(*it->second);
  }
  return use;
}

absl::StatusOr<SessionInfo> SessionTable::Add(const Engine::CreateParams& params, absl::Time now) {
  WEIR_ASSIGN_OR_RETURN(Sequence sequence, NewSequence());
  return Insert(params, std::move(sequence), now);
}

void SessionTable::List(std::string_view owner, std::string_view after, int limit,
                        std::vector<SessionInfo>* out) const {
  for (auto it = sessions_.upper_bound(SessionKey::View{owner, after});
       it != sessions_.end() && it->first.owner == owner && limit > 0; ++it, --limit)
    out->push_back(Info(*it->second, false));
}

absl::StatusOr<SessionInfo> SessionTable::Delete(std::string_view id, std::string_view owner,
                                                 std::string_view etag) {
  WEIR_ASSIGN_OR_RETURN(Session * session, Find(id, owner));
  WEIR_RETURN_IF_ERROR(CheckIdleAndEtag(*session, etag));
  const SessionInfo info = Info(*session, false);
  Discard(session);
  sessions_.erase(sessions_.find(SessionKey::View{owner, id}));
  return info;
}

absl::StatusOr<SessionInfo> SessionTable::Update(std::string_view id, std::string_view owner,
                                                 std::string_view etag, absl::Duration ttl, absl::Time now) {
  WEIR_ASSIGN_OR_RETURN(Session * session, Find(id, owner));
  WEIR_RETURN_IF_ERROR(CheckEtag(*session, etag));
  session->ttl = UsableTtl(ttl);
  Touch(session, now);
  return Info(*session, true);
}

absl::StatusOr<SessionInfo> SessionTable::Fork(std::string_view id, std::string_view owner,
                                               std::string_view etag, std::string_view child,
                                               absl::Time now) {
  WEIR_ASSIGN_OR_RETURN(const Session* parent, Find(id, owner));
  WEIR_RETURN_IF_ERROR(CheckIdleAndEtag(*parent, etag));
  const Sequence& from = parent->sequence;
  WEIR_ASSIGN_OR_RETURN(Sequence to, SequenceIn(arena_.ClaimToOverwrite()));
  if (!to.blocks.Reserve(&kv_, static_cast<int64_t>(from.blocks.blocks().size()) * kKvBlockTokens))
    return MakeError(
        absl::StatusCode::kResourceExhausted, "KV_CAPACITY_EXHAUSTED",
        fmt::format("forking session '{}' needs {} KV blocks of {} bytes, {} are free; delete a session or "
                    "start the server with more --kv-memory",
                    parent->id, from.blocks.blocks().size(), kv_.block_bytes(), kv_.num_free()),
        {{"blocks", std::to_string(from.blocks.blocks().size())}, {"free", std::to_string(kv_.num_free())}},
        absl::Seconds(1));
  arena_.Copy(from.slot, to.slot);
  kv_.Copy(from.blocks, to.blocks);
  to.fed = from.fed;
  to.pending = from.pending;
  to.pending_begin = from.pending_begin;
  to.history = from.history;
  to.text = from.text;
  to.has_text = from.has_text;
  to.corrupt = from.corrupt;
  Engine::CreateParams params;
  params.id = child;
  params.owner = owner;
  params.ttl = parent->ttl;
  return Insert(params, std::move(to), now);
}

void SessionTable::Discard(Session* session) {
  totals_.Forget(session->sequence.slot.index());
  for (auto& [id, snapshot] : session->snapshots) garbage_.push_back(std::move(snapshot.image));
}

void SessionTable::Expire(absl::Time now) {
  if (now < next_sweep_) return;
  next_sweep_ = now + kSweepInterval;
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (it->second->busy || it->second->expire_time > now) {
      ++it;
      continue;
    }
    Discard(it->second.get());
    it = sessions_.erase(it);
  }
}

absl::Time SessionTable::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, session] : sessions_)
    if (!session->busy) next = std::min(next, session->expire_time);
  return std::max(next, next_sweep_);
}

}  // namespace weir
