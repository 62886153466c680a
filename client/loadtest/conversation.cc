#include "client/loadtest/conversation.h"

#include <algorithm>
#include <utility>

#include "client/session_id.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

// A cancelled turn ends for us before it has ended on the server, whose session is busy until then.
constexpr absl::Duration kDeleteAgainAfter = absl::Milliseconds(20);
constexpr absl::Duration kDeleteFor = absl::Seconds(10);
// They are answered at once or refused: a server that does neither must not keep the load test from its end.
constexpr absl::Duration kSessionCallLimit = absl::Seconds(10);

// Whether the server may have done what it did not say that it did.
bool IsInDoubt(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDeadlineExceeded ||
         status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kCancelled;
}

}  // namespace

Conversation::Conversation(TrafficPhase* phase, uint64_t index)
    : phase_(phase), index_(index), model_(phase->workload_->ModelOf(index)) {}

void Conversation::Start(absl::Duration scheduled) {
  record_ = TurnRecord(scheduled);
  if (phase_->workload_->turns() == 1) return StartTurn(scheduled);
  session_ = RandomSessionId();
  stage_ = Stage::kCreating;
  session_may_exist_ = true;
  phase_->Count(model_, [&](TrafficTally& tally) { tally.Sent(scheduled, phase_->loop_->Now()); });
  phase_->transport_->CreateSession(
      phase_->workload_->models()[model_].name, session_, SessionCallLimit(),
      [self = shared_from_this()](absl::Duration at, const absl::StatusOr<SessionFacts>& session) {
        self->Created(at, session.status());
      });
}

absl::Duration Conversation::SessionCallLimit() const {
  return std::min(phase_->options_.timeout, kSessionCallLimit);
}

void Conversation::Created(absl::Duration at, const absl::Status& status) {
  if (status.ok() && !phase_->stopping()) return StartTurn(record_.scheduled());
  session_may_exist_ = status.ok() || IsInDoubt(status);
  const TurnOutcome outcome = status.ok() ? TurnOutcome::kCancelled : TurnOutcome::kFailed;
  phase_->Count(model_,
                [&](TrafficTally& tally) { tally.Ended(record_, at, outcome, /*was_started=*/false); });
  if (!status.ok()) phase_->CallFailed(model_, status);
  End(at, status);
}

void Conversation::StartTurn(absl::Duration scheduled) {
  stage_ = Stage::kTurn;
  // The first turn of a session was sent when its creation was.
  if (session_.empty() || turn_ > 0)
    phase_->Count(model_, [&](TrafficTally& tally) { tally.Sent(scheduled, phase_->loop_->Now()); });
  record_ = TurnRecord(scheduled);
  PlannedTurn planned = phase_->workload_->Turn(index_, turn_);
  phase_->Count(model_, [](TrafficTally& tally) { tally.Started(); });
  running_ = phase_->transport_->StartTurn({.model = phase_->workload_->models()[model_].name,
                                            .session = session_,
                                            .prompt = std::move(planned.prompt),
                                            .max_tokens = planned.output_tokens,
                                            .ignore_eos = true,
                                            .seed = planned.sampling_seed,
                                            .timeout = phase_->options_.timeout},
                                           this);
}

void Conversation::OnPromptInfo(absl::Duration /*at*/, int64_t prompt_tokens, int64_t /*reused_tokens*/) {
  phase_->Count(model_, [&](TrafficTally& tally) { tally.PromptTokens(record_.scheduled(), prompt_tokens); });
}

void Conversation::OnDelta(absl::Duration at, int64_t num_tokens, bool has_text) {
  const bool first = record_.tokens() == 0;
  record_.Delta(at, num_tokens, has_text, [&](int64_t gap, int64_t times) {
    phase_->Count(model_, [&](TrafficTally& tally) { tally.Gap(record_.scheduled(), gap, times); });
  });
  if (num_tokens > 0)
    phase_->Count(model_, [&](TrafficTally& tally) { tally.Tokens(record_, at, num_tokens, first); });
}

void Conversation::OnEnd(absl::Duration at, const TurnResult& end) {
  running_.reset();
  record_.End(at);
  const bool cancelled = phase_->stopping() && end.status.code() == absl::StatusCode::kCancelled;
  const TurnOutcome outcome = cancelled               ? TurnOutcome::kCancelled
                              : !end.status.ok()      ? TurnOutcome::kFailed
                              : record_.tokens() == 0 ? TurnOutcome::kEmpty
                                                      : TurnOutcome::kCompleted;
  phase_->Count(model_,
                [&](TrafficTally& tally) { tally.Ended(record_, at, outcome, /*was_started=*/true); });
  if (outcome == TurnOutcome::kFailed) phase_->CallFailed(model_, end.status);
  const bool more = end.status.ok() && ++turn_ < phase_->workload_->turns();
  if (more && !phase_->schedule_over_) return Think(at + phase_->options_.think);
  End(at, end.status);
}

void Conversation::Think(absl::Duration until) {
  stage_ = Stage::kThinking;
  phase_->loop_->At(until, [weak = weak_from_this(), until] {
    const std::shared_ptr<Conversation> self = weak.lock();
    if (self != nullptr && self->stage_ == Stage::kThinking) self->StartTurn(until);
  });
}

void Conversation::End(absl::Duration at, const absl::Status& status) {
  ended_ = at;
  status_ = status;
  if (!session_may_exist_) {
    stage_ = Stage::kEnded;
    return phase_->ConversationEnded(this, at, status_);
  }
  stage_ = Stage::kDeleting;
  delete_since_ = phase_->loop_->Now();
  Delete();
}

void Conversation::Delete() {
  phase_->transport_->DeleteSession(
      session_, SessionCallLimit(),
      [self = shared_from_this()](absl::Duration at, const absl::Status& status) {
        self->Deleted(at, status);
      });
}

void Conversation::Deleted(absl::Duration at, const absl::Status& status) {
  Loop* const loop = phase_->loop_;
  const bool busy = status.code() == absl::StatusCode::kAborted;
  if (busy && loop->Now() < delete_since_ + kDeleteFor) {
    loop->At(loop->Now() + kDeleteAgainAfter, [weak = weak_from_this()] {
      if (const std::shared_ptr<Conversation> self = weak.lock()) self->Delete();
    });
    return;
  }
  // A session that is gone, or whose server is, needs no deletion.
  const bool gone = status.code() == absl::StatusCode::kNotFound;
  if (!status.ok() && !gone && phase_->lost().ok()) phase_->CallFailed(model_, status);
  stage_ = Stage::kEnded;
  phase_->ConversationEnded(this, at, status_);
}

void Conversation::Stop() {
  if (stage_ == Stage::kTurn && running_ != nullptr) running_->Cancel();
  EndBetweenTurns();
}

void Conversation::EndBetweenTurns() {
  if (stage_ == Stage::kThinking) End(phase_->loop_->Now(), absl::OkStatus());
}

}  // namespace weir
