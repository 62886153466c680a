// TokenStream: the only object that the engine and the network share for one turn.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/turn.h"

namespace weir {

// Everything that waits at the moment of a Drain. Reused from call to call, so that draining does not
// allocate.
struct StreamChunk {
  std::optional<TurnInfo> info;  // once, before the first token
  int64_t position = 0;          // in the sequence, of token_ids[0]
  std::vector<int32_t> token_ids;
  std::vector<float> logprobs;                          // one per token, or empty
  std::vector<int32_t> ranks;                           // the same; of turns that score
  std::vector<std::pair<int32_t, float>> top_logprobs;  // top_count entries per token, most likely first
  int top_count = 0;
  std::string text;                   // whole characters
  std::optional<Finish> finish;       // the turn ended normally; nothing follows
  std::optional<absl::Status> error;  // the turn failed; nothing follows

  bool empty() const { return !info && token_ids.empty() && text.empty() && !finish && !error; }
  bool last() const { return finish || error; }
  void Clear();
};

// Tokens flow from the engine to the network; cancellation and room flow back. Neither side waits for the
// other.
class TokenStream {
 public:
  // `on_readable` runs on the notifier's thread, never on the engine's; `on_progress` on the network's, when
  // the stream was cancelled or is not full any more.
  TokenStream(int top_count, int64_t max_tokens_waiting, absl::AnyInvocable<void()> on_readable,
              absl::AnyInvocable<void()> on_progress);

  // --- engine thread: each returns true when the reader is idle and has to be woken ---
  bool Start(const TurnInfo& info);
  struct Token {
    int32_t id = 0;
    int64_t position = 0;
    const float* logprob = nullptr;                  // null: not asked for
    int32_t rank = 0;                                // from 1; 0: not asked for
    const std::pair<int32_t, float>* top = nullptr;  // `top_count` entries, padded with id -1
    std::string_view text;                           // delivered by this token
  };
  bool Push(const Token& token, absl::Time now);
  bool End(Finish finish, std::string_view text);
  bool Fail(absl::Status status);
  // As many tokens wait as may: the turn pauses until some are taken, and costs nobody else anything.
  bool full() const { return full_.load(std::memory_order_acquire); }
  // Some tokens have waited for longer than `stall`.
  bool ReaderTooSlow(absl::Time now, absl::Duration stall) const;
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  // --- notifier's thread ---
  void Wake() { on_readable_(); }

  // --- network threads ---
  // Moves all that waits into *chunk. When nothing does, the reader is idle from now on and will be woken.
  void Drain(StreamChunk* chunk);
  void Cancel();

 private:
  const int64_t max_tokens_waiting_;
  absl::AnyInvocable<void()> on_readable_;
  absl::AnyInvocable<void()> on_progress_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> full_{false};
  mutable Mutex mu_;
  StreamChunk waiting_ ABSL_GUARDED_BY(mu_);
  absl::Time waiting_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool reader_idle_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir
