// TurnRecord: from the events of one stream to the figures that users of inference servers know.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "runtime/base/function_ref.h"

namespace weir {

// Times are the Loop's. Latencies are counted from `scheduled`, when the request was due, not from when it
// was sent: a load test that is held up by the server would hide the wait otherwise.
//
// A message that carries several tokens: the first of them gets the whole gap since the message before it
// that had tokens, the others 0, as that is how a reader saw them.
class TurnRecord {
 public:
  explicit TurnRecord(absl::Duration scheduled) : scheduled_(scheduled) {}

  // Each gap between tokens, in ns, and how often it comes, goes to `gap`.
  using OnGap = FunctionRef<void(int64_t gap, int64_t times)>;
  void Delta(absl::Duration at, int64_t num_tokens, bool has_text, OnGap gap);
  void End(absl::Duration at) { ended_ = at; }

  absl::Duration scheduled() const { return scheduled_; }
  int64_t tokens() const { return tokens_; }

  // Nothing where there is no such figure: a stream without tokens has no first one.
  std::optional<absl::Duration> TimeToFirstToken() const;
  std::optional<absl::Duration> TimeToFirstText() const;
  // (E2E - TTFT) / (tokens - 1): from two tokens on, after End().
  std::optional<absl::Duration> TimePerOutputToken() const;
  std::optional<absl::Duration> EndToEnd() const;
  // Of the stream by itself, tokens after the first over the time from the first to the last.
  std::optional<double> TokensPerSecond() const;

 private:
  absl::Duration scheduled_;
  absl::Duration first_token_ = absl::InfiniteDuration();
  absl::Duration first_text_ = absl::InfiniteDuration();
  absl::Duration last_token_;
  absl::Duration ended_ = absl::InfiniteDuration();
  int64_t tokens_ = 0;
};

}  // namespace weir
