#include "server/frontend/turn_messages.h"

#include <string>
#include <utility>

#include "server/frontend/names.h"

namespace weir {
namespace {

void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  out->set_seconds(seconds);
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
}

}  // namespace

std::string_view WholeCharacters(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

void TurnMessages::Add(const StreamChunk& chunk, std::deque<v1::GenerateResponse>* out) {
  if (chunk.info) {
    next_position_ = chunk.info->reused_tokens + chunk.info->prompt_tokens;
    out->push_back(PromptInfoMessage(*chunk.info));
  }
  AddDeltas(chunk, out);
  if (chunk.finish) out->push_back(FinishMessage(*chunk.finish));
}

v1::GenerateResponse TurnMessages::PromptInfoMessage(const TurnInfo& info) const {
  v1::GenerateResponse message;
  v1::PromptInfo* out = message.mutable_prompt_info();
  out->set_prompt_tokens(info.prompt_tokens);
  out->set_reused_tokens(info.reused_tokens);
  if (turn_->session.empty())
    out->set_miss_reason("no_session");
  else if (turn_->session_was_empty)
    out->set_miss_reason("new_session");
  else
    out->set_reused_from(SessionName(turn_->session));
  out->set_model(ModelName(turn_->model->name));
  out->set_seed(turn_->seed);
  return message;
}

void TurnMessages::AddLogprobs(const StreamChunk& chunk, size_t token, v1::Delta* delta) const {
  const auto fill = [&](int32_t id, float logprob, v1::TokenLogprob* out) {
    const std::string_view piece = turn_->model->text->Piece(id, /*at_start=*/false);
    out->set_token_id(id);
    out->set_logprob(logprob);
    out->set_piece(piece.data(), piece.size());
  };
  v1::TokenLogprob* entry = delta->add_logprobs();
  fill(chunk.token_ids[token], chunk.logprobs[token], entry);
  const auto top_count = static_cast<size_t>(chunk.top_count);
  for (size_t i = token * top_count; i < (token + 1) * top_count && i < chunk.top_logprobs.size(); ++i) {
    const auto& [id, logprob] = chunk.top_logprobs[i];
    if (id >= 0) fill(id, logprob, entry->add_top());
  }
}

void TurnMessages::AddDeltas(const StreamChunk& chunk, std::deque<v1::GenerateResponse>* out) {
  if (chunk.token_ids.empty() && chunk.text.empty()) return;
  if (!chunk.token_ids.empty()) next_position_ = chunk.position;
  v1::Delta* delta = nullptr;
  size_t bytes = 0;
  const auto begin = [&] {
    delta = out->emplace_back().mutable_delta();
    delta->set_position(next_position_);
    bytes = 0;
  };
  begin();
  for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
    if (bytes > kTargetBytes) begin();
    delta->add_token_ids(chunk.token_ids[i]);
    bytes += 5;
    if (i < chunk.logprobs.size()) {
      AddLogprobs(chunk, i, delta);
      bytes += delta->logprobs().rbegin()->ByteSizeLong() + 4;
    }
    ++next_position_;
  }
  // Text is not told apart by token, so it travels behind the last of the ids.
  std::string_view text = chunk.text;
  while (!text.empty()) {
    if (bytes + text.size() > kTargetBytes && bytes > 0) begin();
    const std::string_view part = WholeCharacters(text, kTargetBytes);
    delta->set_text(part.data(), part.size());
    bytes += part.size();
    text.remove_prefix(part.size());
  }
}

v1::GenerateResponse TurnMessages::FinishMessage(const Finish& finish) const {
  v1::GenerateResponse message;
  v1::Finish* out = message.mutable_finish();
  switch (finish.reason) {
    case FinishReason::kEos:
      out->set_eos_token_id(finish.token_id);
      break;
    case FinishReason::kStopToken:
      out->set_stop_token_id(finish.token_id);
      break;
    case FinishReason::kStopString:
      out->set_stop_string(turn_->stop_strings.at(static_cast<size_t>(finish.stop_string)));
      break;
    case FinishReason::kMaxTokens:
      out->set_max_tokens(turn_->max_tokens);
      break;
    case FinishReason::kContextLimit:
      out->set_context_limit(turn_->model->decoder->context_limit());
      break;
    case FinishReason::kTimeLimit:
      SetDuration(turn_->max_time, out->mutable_time_limit());
      break;
  }
  out->mutable_usage()->set_prompt_tokens(finish.prompt_tokens);
  out->mutable_usage()->set_generated_tokens(finish.generated_tokens);
  out->mutable_usage()->set_position(finish.position);
  out->set_incomplete_text(finish.incomplete_text);
  out->set_etag(finish.etag);
  return message;
}

}  // namespace weir
