#include "runtime/engine/engine_metrics.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr double kFirstToken[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08,
                                  0.1,    0.25,  0.5,    0.75,  1,    2.5,  5,    7.5,  10};
constexpr double kPerToken[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                0.1,    0.15,    0.2,    0.3,   0.4,    0.5,   0.75, 1,     2.5};
constexpr double kRequest[] = {0.001, 0.0025, 0.005, 0.01, 0.02,  0.04,  0.08,  0.16, 0.32,
                               0.64,  1.28,   2.56,  5.12, 10.24, 20.48, 40.96, 81.92};
constexpr double kStepTokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536};
constexpr double kCopy[] = {0.0001, 0.001, 0.01, 0.1, 1, 10, 100};

// Where the names of status codes begin among kReasons.
constexpr size_t kFirstCode = 13;

size_t IndexOf(const absl::Status& refusal) {
  const std::string reason = GetErrorDetails(refusal).reason;
  const auto& all = Rejections::kReasons;
  const auto named = std::find(all.begin(), all.begin() + kFirstCode, reason);
  if (named != all.begin() + kFirstCode) return static_cast<size_t>(named - all.begin());
  const auto code =
      std::find(all.begin() + kFirstCode, all.end() - 1, absl::StatusCodeToString(refusal.code()));
  return static_cast<size_t>(code - all.begin());  // or the last
}

}  // namespace

const std::span<const double> kFirstTokenBounds = kFirstToken, kPerTokenBounds = kPerToken,
                              kRequestBounds = kRequest;

const std::array<std::string_view, 19> Rejections::kReasons = {
    "QUEUE_FULL",
    "SESSION_CAPACITY_EXHAUSTED",
    "KV_CAPACITY_EXHAUSTED",
    "SNAPSHOT_MEMORY_EXHAUSTED",
    "SESSION_QUOTA_EXCEEDED",
    "STATE_QUOTA_EXCEEDED",
    "TOKEN_LIMIT_EXCEEDED",
    "RATE_LIMITED",
    "LOADING",
    "DRAINING",
    "SHUTTING_DOWN",
    "API_KEY_MISSING",
    "API_KEY_INVALID",
    // codes
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ABORTED",
    "CANCELLED",
    "DEADLINE_EXCEEDED",
    "OTHER",
};

std::string_view TurnEndingName(TurnEnding end) {
  switch (end) {
    case TurnEnding::kEos:
      return "eos";
    case TurnEnding::kStopToken:
      return "stop_token";
    case TurnEnding::kStopString:
      return "stop_string";
    case TurnEnding::kMaxTokens:
      return "max_tokens";
    case TurnEnding::kContextLimit:
      return "context_limit";
    case TurnEnding::kTimeLimit:
      return "time_limit";
    case TurnEnding::kAppended:
      return "appended";
    case TurnEnding::kScored:
      return "scored";
    case TurnEnding::kCancelled:
      return "cancelled";
    case TurnEnding::kDeadlineExceeded:
      return "deadline_exceeded";
    case TurnEnding::kClientTooSlow:
      return "client_too_slow";
    case TurnEnding::kNoCapacity:
      return "no_capacity";
    case TurnEnding::kUnavailable:
      return "unavailable";
    case TurnEnding::kError:
      break;
  }
  return "error";
}

TurnEnding TurnEndingOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return TurnEnding::kEos;
    case FinishReason::kStopToken:
      return TurnEnding::kStopToken;
    case FinishReason::kStopString:
      return TurnEnding::kStopString;
    case FinishReason::kMaxTokens:
      return TurnEnding::kMaxTokens;
    case FinishReason::kContextLimit:
      return TurnEnding::kContextLimit;
    case FinishReason::kTimeLimit:
      break;
  }
  return TurnEnding::kTimeLimit;
}

TurnEnding TurnEndingOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kCancelled:
      return TurnEnding::kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return TurnEnding::kDeadlineExceeded;
    case absl::StatusCode::kUnavailable:
      return TurnEnding::kUnavailable;
    case absl::StatusCode::kResourceExhausted:
      return GetErrorDetails(error).reason == "CLIENT_TOO_SLOW" ? TurnEnding::kClientTooSlow
                                                                : TurnEnding::kNoCapacity;
    default:
      return TurnEnding::kError;
  }
}

void Rejections::Add(const absl::Status& refusal) {
  counts_[IndexOf(refusal)].fetch_add(1, std::memory_order_relaxed);
}

void Rejections::AddIfOfCapacity(const absl::Status& refusal) {
  if (absl::IsResourceExhausted(refusal) || absl::IsUnavailable(refusal)) Add(refusal);
}

RunnerMetrics::RunnerMetrics()
    : time_to_first_token(kFirstToken),
      inter_token_latency(kPerToken),
      time_per_output_token(kPerToken),
      request_duration(kRequest),
      step_duration(kPerToken),
      step_tokens(kStepTokens) {}

EngineMetrics::EngineMetrics() : snapshot_duration(kCopy), restore_duration(kCopy) {}

void RunnerMetrics::OnStart(absl::Time arrival, TurnTimes* times) {
  times->arrival = arrival;
  times->counted = true;
  started.Add();
}

void RunnerMetrics::OnToken(absl::Time now, TurnTimes* times) {
  generated_tokens.Add();
  if (times->first_token == absl::InfiniteFuture()) {
    times->first_token = now;
    time_to_first_token.Observe(absl::ToDoubleSeconds(now - times->arrival));
  } else {
    inter_token_latency.Observe(absl::ToDoubleSeconds(now - times->last_token));
  }
  times->last_token = now;
}

void RunnerMetrics::OnEnd(const TurnTimes& times, int64_t generated, TurnEnding end, absl::Time now) {
  if (!times.counted) return;
  if (generated > 1)
    time_per_output_token.Observe(absl::ToDoubleSeconds(times.last_token - times.first_token) /
                                  static_cast<double>(generated - 1));
  request_duration.Observe(absl::ToDoubleSeconds(now - times.arrival));
  ended[static_cast<size_t>(end)].Add();
}

}  // namespace weir
