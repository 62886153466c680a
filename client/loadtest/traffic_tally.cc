#include "client/loadtest/traffic_tally.h"

#include <cmath>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kRateUnit = 1e3;  // stream rates are kept in thousandths of a token per second

int64_t Ns(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

// Nearest rank, of ns.
std::optional<double> MedianMs(std::vector<int64_t> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle) / kNsPerMs;
}

}  // namespace

TrafficTally::Second& TrafficTally::SecondOf(absl::Duration at) {
  absl::Duration rest;
  const auto second = static_cast<size_t>(absl::IDivDuration(at - start_, absl::Seconds(1), &rest));
  if (second >= seconds_.size()) seconds_.resize(second + 1);
  return seconds_[second];
}

// Medians of the first so many seconds, whose values are then dropped.
void TrafficTally::SumUp(size_t seconds) {
  for (; summed_ < std::min(seconds, seconds_.size()); ++summed_)
    seconds_[summed_].ttft_p50_ms = MedianMs(std::exchange(seconds_[summed_].ttft, {}));
}

void TrafficTally::Sent(absl::Duration scheduled, absl::Duration sent) {
  if (!Counts(scheduled)) return;
  ++figures_.scheduled;
  send_lag_.Add(Ns(sent - scheduled));
}

void TrafficTally::PromptTokens(absl::Duration scheduled, int64_t tokens) {
  if (Counts(scheduled)) figures_.prompt_tokens += tokens;
}

void TrafficTally::Tokens(const TurnRecord& turn, absl::Duration at, int64_t tokens, bool first) {
  figures_.all_generated_tokens += tokens;
  const bool counts = Counts(turn.scheduled());
  const int64_t ttft = Ns(at - turn.scheduled());
  if (counts) figures_.generated_tokens += tokens;
  // What a stream shows before it may break is seen; how long it takes as a whole is not.
  if (counts && first) ttft_.Add(ttft);
  if (!InTime(at)) return;
  figures_.tokens_in_time += tokens;
  Second& second = SecondOf(at);
  second.tokens += tokens;
  if (counts && first) second.ttft.push_back(ttft);
}

void TrafficTally::Gap(absl::Duration scheduled, int64_t gap, int64_t times) {
  if (Counts(scheduled)) itl_.Add(gap, times);
}

bool TrafficTally::KeptLimits(const TurnRecord& turn) const {
  // A single token has no time per token, and so none that is too long.
  return turn.TimeToFirstToken().value_or(absl::InfiniteDuration()) <= limits_.ttft &&
         turn.TimePerOutputToken().value_or(absl::ZeroDuration()) <= limits_.tpot &&
         turn.EndToEnd().value_or(absl::InfiniteDuration()) <= limits_.e2e;
}

void TrafficTally::Ended(const TurnRecord& turn, absl::Duration at, TurnOutcome outcome, bool was_started) {
  running_ -= was_started ? 1 : 0;
  const bool completed = outcome == TurnOutcome::kCompleted;
  if (completed && InTime(at)) {
    ++completed_in_time_;
    good_in_time_ += KeptLimits(turn) ? 1 : 0;
  }
  if (!Counts(turn.scheduled())) return;
  figures_.completed += completed ? 1 : 0;
  figures_.empty += outcome == TurnOutcome::kEmpty ? 1 : 0;
  figures_.failed += outcome == TurnOutcome::kFailed ? 1 : 0;
  figures_.cancelled += outcome == TurnOutcome::kCancelled ? 1 : 0;
  if (const auto first_text = turn.TimeToFirstText()) first_text_.Add(Ns(*first_text));
  if (!completed) return;
  e2e_.Add(Ns(*turn.EndToEnd()));
  if (const auto tpot = turn.TimePerOutputToken()) tpot_.Add(Ns(*tpot));
  if (const auto rate = turn.TokensPerSecond()) stream_rate_.Add(std::llround(*rate * kRateUnit));
}

void TrafficTally::Error(const absl::Status& status) {
  const std::string reason = ReasonOrCode(status);
  ++figures_.errors[reason];
  figures_.error_messages.emplace(reason, std::string(status.message()));
}

void TrafficTally::Tick(absl::Duration now) {
  if (now > end_) return;
  // The second that ends now; a first token may still be on its way to us, so medians wait for two seconds
  // more.
  if (now > start_) SecondOf(now - absl::Nanoseconds(1)).running = running_;
  if (seconds_.size() > 2) SumUp(seconds_.size() - 2);
}

TrafficFigures TrafficTally::Figures(absl::Duration last) const {
  TrafficFigures figures = figures_;
  const absl::Duration end = std::max(start_, std::min(end_, last));
  figures.seconds = absl::ToDoubleSeconds(end - start_);
  figures.drain_seconds = absl::ToDoubleSeconds(std::max(absl::ZeroDuration(), last - end));
  if (figures.seconds > 0 && figures_.scheduled + figures_.tokens_in_time + completed_in_time_ > 0) {
    figures.tokens_per_second = static_cast<double>(figures_.tokens_in_time) / figures.seconds;
    figures.requests_per_second = static_cast<double>(completed_in_time_) / figures.seconds;
    figures.goodput_per_second = static_cast<double>(good_in_time_) / figures.seconds;
  }
  figures.ttft_ms = ttft_.Summary(kNsPerMs);
  figures.first_text_ms = first_text_.Summary(kNsPerMs);
  figures.itl_ms = itl_.Summary(kNsPerMs);
  figures.tpot_ms = tpot_.Summary(kNsPerMs);
  figures.e2e_ms = e2e_.Summary(kNsPerMs);
  figures.send_lag_ms = send_lag_.Summary(kNsPerMs);
  figures.stream_tokens_per_second = stream_rate_.Summary(kRateUnit);
  for (size_t i = 0; i < seconds_.size(); ++i)
    figures.timeline.push_back(
        {.second = static_cast<int64_t>(i),
         .tokens = seconds_[i].tokens,
         .running = seconds_[i].running,
         .ttft_p50_ms = i < summed_ ? seconds_[i].ttft_p50_ms : MedianMs(seconds_[i].ttft)});
  return figures;
}

}  // namespace weir
