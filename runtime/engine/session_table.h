// SessionTable: one model's sequence memory and the sessions that live in it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/sequence.h"

namespace weir {

// Engine thread only.
class SessionTable {
 public:
  // `model_index` is what SessionInfo::model says.
  static absl::StatusOr<std::unique_ptr<SessionTable>> Create(int model_index, const EngineModel& model,
                                                              Device& device, const EngineOptions& options);

  StateArena& arena() { return arena_; }
  KvPool& kv() { return kv_; }
  size_t size() const { return sessions_.size(); }

  // NOT_FOUND for what does not exist and for what belongs to somebody else alike.
  absl::StatusOr<Session*> Find(std::string_view id, std::string_view owner);
  bool Has(std::string_view id) const { return sessions_.find(id) != sessions_.end(); }
  SessionInfo Info(const Session& session, bool with_recent_tokens) const;

  absl::StatusOr<SessionInfo> Add(const Engine::CreateParams& params, absl::Time now);
  void List(std::string_view owner, std::string_view after, int limit, std::vector<SessionInfo>* out) const;
  absl::StatusOr<SessionInfo> Delete(std::string_view id, std::string_view owner, std::string_view etag);
  // The parent does not change.
  absl::StatusOr<SessionInfo> Fork(std::string_view id, std::string_view owner, std::string_view etag,
                                   std::string_view child, absl::Time now);
  absl::StatusOr<std::string> Snapshot(std::string_view id, std::string_view owner);
  // Checks all of `snapshot` before anything changes.
  absl::StatusOr<SessionInfo> Restore(const Engine::CreateParams& params, std::string_view snapshot,
                                      absl::Time now);

  // It was made, or a turn has ended: idle time counts from here.
  void Touch(Session* session, absl::Time now) { session->expire_time = now + session->ttl; }
  // Ends idle sessions whose time is over; busy ones stay.
  void Expire(absl::Time now);
  absl::Time NextExpiry() const;

  // An empty sequence in a fresh slot, or RESOURCE_EXHAUSTED naming the bytes.
  absl::StatusOr<Sequence> NewSequence();

 private:
  SessionTable(int model_index, const EngineModel& model, const EngineOptions& options, StateArena arena,
               KvPool kv)
      : model_index_(model_index),
        model_(model),
        options_(options),
        arena_(std::move(arena)),
        kv_(std::move(kv)) {}
  absl::StatusOr<SessionInfo> Insert(const Engine::CreateParams& params, Sequence sequence, absl::Time now);

  const int model_index_;
  const EngineModel& model_;
  const EngineOptions& options_;
  StateArena arena_;
  KvPool kv_;
  absl::Time next_sweep_ = absl::InfinitePast();
  std::map<std::string, std::unique_ptr<Session>, std::less<>> sessions_;
};

// Refuses when a turn is running or the caller's etag is out of date.
absl::Status CheckIdleAndEtag(const Session& session, std::string_view etag);

}  // namespace weir
