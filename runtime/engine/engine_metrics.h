// What the engine counts and measures, for whoever shows it (server/metrics). Filled on the engine's thread,
// before the client can see what is counted; read on any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/histogram.h"
#include "runtime/engine/turn.h"

namespace weir {

// How a turn that stood in line, or ran, has ended.
enum class TurnEnding : uint8_t {
  kEos,
  kStopToken,
  kStopString,
  kMaxTokens,
  kContextLimit,
  kTimeLimit,
  kAppended,  // Append: nothing was to be generated
  kScored,
  kCancelled,
  kDeadlineExceeded,
  kClientTooSlow,
  kNoCapacity,
  kUnavailable,  // the server stopped
  kError,
};
inline constexpr int kNumTurnEndings = static_cast<int>(TurnEnding::kError) + 1;

// As in weir_requests_total{finish_reason}.
std::string_view TurnEndingName(TurnEnding end);
TurnEnding TurnEndingOf(FinishReason reason);
TurnEnding TurnEndingOf(const absl::Status& error);

// Turns, and calls for sessions, that were refused before they had any effect, by reason. Any thread.
class Rejections {
 public:
  // UPPER_SNAKE: reasons of ErrorInfo that tell of capacity, limits and access, then names of status codes
  // for all others.
  static const std::array<std::string_view, 19> kReasons;

  void Add(const absl::Status& refusal);
  // The same, if it is for want of room, or for the server's state: what only the operator can change.
  void AddIfOfCapacity(const absl::Status& refusal);
  int64_t count(size_t reason) const { return counts_[reason].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, 19> counts_{};
};

// When things happened to one turn.
struct TurnTimes {
  absl::Time arrival;
  absl::Time first_token = absl::InfiniteFuture();
  absl::Time last_token;
  bool counted = false;  // it got into the line: started, and to be ended
};

// Of one model.
struct RunnerMetrics {
  RunnerMetrics();

  void OnStart(absl::Time arrival, TurnTimes* times);
  void OnToken(absl::Time now, TurnTimes* times);
  void OnEnd(const TurnTimes& times, int64_t generated, TurnEnding end, absl::Time now);

  EventCounter started;
  std::array<EventCounter, kNumTurnEndings> ended;
  EventCounter prompt_tokens, prefilled_tokens, generated_tokens, steps, nonfinite_rows;
  // Of prompts: tokens before them that a session's state held, and tokens that came with no state to go on
  // from.
  EventCounter reused_tokens, missed_without_session, missed_in_new_session;
  // Seconds.
  Histogram time_to_first_token, inter_token_latency, time_per_output_token, request_duration, step_duration;
  Histogram step_tokens;
  Rejections rejections;
};

struct EngineMetrics {
  EngineMetrics();
  Histogram snapshot_duration, restore_duration;  // seconds
  Rejections rejections;
};

// Bounds as OpenTelemetry gives them for gen_ai.server.*, and some below, in seconds.
extern const std::span<const double> kFirstTokenBounds, kPerTokenBounds, kRequestBounds;

}  // namespace weir
