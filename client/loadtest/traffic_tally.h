// TrafficTally: counts what the requests of one traffic phase, or of one model in it, did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/loadtest/latency_histogram.h"
#include "client/loadtest/report.h"
#include "client/loadtest/turn_record.h"

namespace weir {

// Infinite: no limit.
struct GoodputLimits {
  absl::Duration ttft = absl::InfiniteDuration();
  absl::Duration tpot = absl::InfiniteDuration();
  absl::Duration e2e = absl::InfiniteDuration();
};

enum class TurnOutcome { kCompleted, kEmpty, kFailed, kCancelled };

// On the Loop's thread. Times are the Loop's. A request counts when it was due at `start` or later, however
// late it ends; rates are of what happened from `start` until the end of the measured time.
class TrafficTally {
 public:
  TrafficTally(const GoodputLimits& limits, absl::Duration start) : limits_(limits), start_(start) {}

  // What comes then or later is not in the measured time. Told before that comes.
  void SetEnd(absl::Duration end) { end_ = std::min(end_, end); }

  bool Counts(absl::Duration scheduled) const { return scheduled >= start_; }

  void Sent(absl::Duration scheduled, absl::Duration sent);
  void PromptTokens(absl::Duration scheduled, int64_t tokens);
  // Tokens that arrived; `first` when the turn had none before, `gap` as TurnRecord gives them.
  void Tokens(const TurnRecord& turn, absl::Duration at, int64_t tokens, bool first);
  void Gap(absl::Duration scheduled, int64_t gap, int64_t times);
  // `was_started`: false for one whose session could not be created.
  void Ended(const TurnRecord& turn, absl::Duration at, TurnOutcome outcome, bool was_started);
  // Of a turn or of a session's call: counted by reason, with the first message of each.
  void Error(const absl::Status& status);
  void Started() { ++running_; }
  // Once a second.
  void Tick(absl::Duration now);

  int64_t running() const { return running_; }  // turns
  int64_t completed() const { return figures_.completed; }
  int64_t failed() const { return figures_.failed; }
  // All that arrived, also before `start`.
  int64_t all_tokens() const { return figures_.all_generated_tokens; }
  const LatencyHistogram& ttft() const { return ttft_; }
  const LatencyHistogram& itl() const { return itl_; }

  // `last`: when the last request had ended; the measured time ends then where SetEnd() named no earlier one.
  TrafficFigures Figures(absl::Duration last) const;

 private:
  struct Second {
    int64_t tokens = 0;
    int64_t running = 0;
    std::vector<int64_t> ttft;  // ns; until the median is taken
    std::optional<double> ttft_p50_ms;
  };

  bool InTime(absl::Duration at) const { return at >= start_ && at < end_; }
  Second& SecondOf(absl::Duration at);  // for a time that is InTime
  void SumUp(size_t seconds);
  bool KeptLimits(const TurnRecord& turn) const;

  const GoodputLimits limits_;
  const absl::Duration start_;
  absl::Duration end_ = absl::InfiniteDuration();
  TrafficFigures figures_;  // its counts
  int64_t running_ = 0;
  int64_t completed_in_time_ = 0;
  int64_t good_in_time_ = 0;
  LatencyHistogram ttft_, first_text_, itl_, tpot_, e2e_, send_lag_, stream_rate_;
  std::vector<Second> seconds_;
  size_t summed_ = 0;  // seconds whose median is taken
};

}  // namespace weir
