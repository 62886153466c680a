// Conversation: one request, or the turns of one session, from its arrival to the session's deletion.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/loadtest/traffic.h"
#include "client/loadtest/transport.h"
#include "client/loadtest/turn_record.h"

namespace weir {

// On the Loop's thread; owned by its phase until it has told it that it ended.
class Conversation final : public TurnObserver, public std::enable_shared_from_this<Conversation> {
 public:
  Conversation(TrafficPhase* phase, uint64_t index);

  // `scheduled`: when its first turn is due. A session is created then, which is part of that turn's wait.
  void Start(absl::Duration scheduled);
  // Cancels what runs, starts nothing more, and deletes the session. May be called again.
  void Stop();
  // The schedule is over: a conversation between two turns ends there.
  void EndBetweenTurns();

  // When its last turn had; once it has ended.
  absl::Duration ended() const { return ended_; }

  void OnPromptInfo(absl::Duration at, int64_t prompt_tokens, int64_t reused_tokens) override;
  void OnDelta(absl::Duration at, int64_t num_tokens, bool has_text) override;
  void OnEnd(absl::Duration at, const TurnResult& end) override;

 private:
  enum class Stage { kCreating, kTurn, kThinking, kDeleting, kEnded };

  absl::Duration SessionCallLimit() const;
  void Created(absl::Duration at, const absl::Status& status);
  void StartTurn(absl::Duration scheduled);
  void Think(absl::Duration until);
  // After the last turn; `status` is that of the conversation.
  void End(absl::Duration at, const absl::Status& status);
  void Delete();
  void Deleted(absl::Duration at, const absl::Status& status);

  TrafficPhase* const phase_;
  const uint64_t index_;
  const size_t model_;
  Stage stage_ = Stage::kCreating;
  std::string session_;  // empty: none
  bool session_may_exist_ = false;
  int turn_ = 0;
  TurnRecord record_{absl::ZeroDuration()};
  std::unique_ptr<RunningTurn> running_;
  absl::Status status_;  // of the first call that failed
  absl::Duration ended_;
  absl::Duration delete_since_;  // first attempt
};

}  // namespace weir
