// ModelRunner: the end of a turn, and what is counted of turns.
#include <algorithm>
#include <utility>

#include "runtime/engine/model_runner.h"

namespace weir {

void ModelRunner::EndTurn(ActiveTurn* turn, FinishReason reason, int32_t token_id, int stop_string,
                          absl::Time now, WakeList* wake) {
  const TurnParams& params = turn->params;
  Finish finish;
  finish.reason = reason;
  finish.token_id = token_id;
  finish.stop_string = stop_string;
  finish.prompt_tokens = turn->prompt_tokens;
  finish.generated_tokens = turn->generated;
  text_.clear();
  turn->text.Finish(&text_, &finish.incomplete_text);
  if (reason == FinishReason::kTimeLimit) DropUnfedPrompt(turn);
  finish.position = turn->sequence().position();
  const TurnEnding end = params.score             ? TurnEnding::kScored
                         : params.max_tokens == 0 ? TurnEnding::kAppended
                                                  : TurnEndingOf(reason);
  CountEnd(*turn, end, now);
  Release(turn, now);
  if (turn->session != nullptr) finish.etag = turn->session->etag();
  if (turn->stream->End(std::move(finish), text_)) wake->streams.push_back(turn->stream);
}

void ModelRunner::FailTurn(ActiveTurn* turn, absl::Status status, absl::Time now, WakeList* wake) {
  DropUnfedPrompt(turn);
  CountEnd(*turn, TurnEndingOf(status), now);
  Release(turn, now);
  if (turn->stream->Fail(std::move(status))) wake->streams.push_back(turn->stream);
}

void ModelRunner::CountAdmission(const ActiveTurn& turn, const TurnInfo& info) {
  metrics_.prompt_tokens.Add(info.prompt_tokens);
  metrics_.reused_tokens.Add(info.reused_tokens);
  if (turn.session == nullptr)
    metrics_.missed_without_session.Add(info.prompt_tokens);
  else if (info.reused_tokens == 0)
    metrics_.missed_in_new_session.Add(info.prompt_tokens);
}

void ModelRunner::CountEnd(const ActiveTurn& turn, TurnEnding end, absl::Time now) {
  metrics_.OnEnd(turn.times, turn.generated, end, std::max(now, step_end_));
}

void ModelRunner::DropUnfedPrompt(ActiveTurn* turn) {
  if (!turn->admitted || turn->generated > 0 || turn->prompt_tokens == 0) return;
  Sequence& sequence = turn->sequence();
  sequence.DropUnfedPrompt(turn->before, [this](int32_t id) { return model_.text->IsSpecial(id); });
  // A character that was cut before goes on if the prompt never came.
  if (sequence.position() == turn->before.position) turn->text = TextStream({}, turn->before.text);
}

void ModelRunner::Release(ActiveTurn* turn, absl::Time now) {
  turn->done = true;
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  if (turn->session == nullptr) {
    turn->own = Sequence();
    return;
  }
  Session* session = turn->session;
  session->busy = false;
  if (turn->admitted) {  // otherwise it never left the line, and the session is as it was
    session->sequence.text = turn->text.state();
    session->sequence.Compact();
    session->sequence.blocks.Truncate(session->sequence.position());
    ++session->turns;
  }
  sessions_->Touch(session, now);
}

void ModelRunner::FailAll(const absl::Status& status, WakeList* wake) {
  const absl::Time now = absl::InfinitePast();
  step_end_ = options_.now();
  for (auto& turn : waiting_) FailTurn(turn.get(), status, now, wake);
  for (auto& turn : running_) FailTurn(turn.get(), status, now, wake);
  waiting_.clear();
  running_.clear();
}

RunnerStats ModelRunner::Stats() const {
  RunnerStats stats;
  stats.prompt_tokens = metrics_.prompt_tokens.value();
  stats.prefilled_tokens = metrics_.prefilled_tokens.value();
  stats.generated_tokens = metrics_.generated_tokens.value();
  stats.steps = metrics_.steps.value();
  stats.nonfinite_rows = metrics_.nonfinite_rows.value();
  stats.slots_total = sessions_->arena().num_slots();
  stats.slots_free = sessions_->arena().num_free();
  stats.slot_bytes = sessions_->arena().slot_bytes();
  stats.kv_blocks_total = sessions_->kv().num_blocks();
  stats.kv_blocks_free = sessions_->kv().num_free();
  stats.kv_block_bytes = sessions_->kv().block_bytes();
  stats.sessions = static_cast<int64_t>(sessions_->size());
  stats.running = static_cast<int64_t>(running_.size());
  stats.waiting = static_cast<int64_t>(waiting_.size());
  const SessionTotals::Counted counted = sessions_->totals().sum();
  stats.session_positions = counted.position;
  stats.session_state_bytes = counted.state_bytes;
  stats.max_session_position = sessions_->totals().max_position();
  // Sessions are counted when a turn ends; those of running turns have come further.
  for (const auto& turn : running_) {
    if (turn->session == nullptr) continue;
    const Sequence& sequence = turn->session->sequence;
    const SessionTotals::Counted before = sessions_->totals().of(sequence.slot.index());
    stats.session_positions += sequence.position() - before.position;
    stats.session_state_bytes += sessions_->StateBytes(sequence) - before.state_bytes;
    stats.max_session_position = std::max(stats.max_session_position, sequence.position());
  }
  return stats;
}

}  // namespace weir
