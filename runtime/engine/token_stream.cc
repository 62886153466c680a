#include "runtime/engine/token_stream.h"

#include <utility>

namespace weir {

void StreamChunk::Clear() {
  info.reset();
  position = 0;
  token_ids.clear();
  logprobs.clear();
  ranks.clear();
  top_logprobs.clear();
  text.clear();
  finish.reset();
  error.reset();
}

TokenStream::TokenStream(int top_count, int64_t max_tokens_waiting, absl::AnyInvocable<void()> on_readable,
                         absl::AnyInvocable<void()> on_progress)
    : max_tokens_waiting_(max_tokens_waiting),
      on_readable_(std::move(on_readable)),
      on_progress_(std::move(on_progress)) {
  waiting_.top_count = top_count;
}

bool TokenStream::Start(const TurnInfo& info) {
  MutexLock lock(&mu_);
  waiting_.info = info;
  return std::exchange(reader_idle_, false);
}

bool TokenStream::Push(const Token& token, absl::Time now) {
  MutexLock lock(&mu_);
  if (waiting_.token_ids.empty()) {
    waiting_.position = token.position;
    waiting_since_ = now;
  }
  waiting_.token_ids.push_back(token.id);
  if (token.logprob != nullptr) waiting_.logprobs.push_back(*token.logprob);
  if (token.rank > 0) waiting_.ranks.push_back(token.rank);
  for (int i = 0; i < waiting_.top_count; ++i) waiting_.top_logprobs.push_back(token.top[i]);
  waiting_.text.append(token.text);
  if (static_cast<int64_t>(waiting_.token_ids.size()) >= max_tokens_waiting_)
    full_.store(true, std::memory_order_release);
  return std::exchange(reader_idle_, false);
}

bool TokenStream::End(Finish finish, std::string_view text) {
  MutexLock lock(&mu_);
  waiting_.text.append(text);
  waiting_.finish = std::move(finish);
  return std::exchange(reader_idle_, false);
}

bool TokenStream::Fail(absl::Status status) {
  MutexLock lock(&mu_);
  waiting_.error = std::move(status);
  return std::exchange(reader_idle_, false);
}

bool TokenStream::ReaderTooSlow(absl::Time now, absl::Duration stall) const {
  MutexLock lock(&mu_);
  return !waiting_.token_ids.empty() && now - waiting_since_ > stall;
}

void TokenStream::Drain(StreamChunk* chunk) {
  chunk->Clear();
  bool was_full;
  {
    MutexLock lock(&mu_);
    chunk->top_count = waiting_.top_count;
    std::swap(*chunk, waiting_);
    reader_idle_ = chunk->empty();
    // Under the lock: a Push after the swap may fill the stream again.
    was_full = full_.exchange(false, std::memory_order_acq_rel);
  }
  if (was_full && on_progress_) on_progress_();
}

void TokenStream::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  if (on_progress_) on_progress_();
}

}  // namespace weir
