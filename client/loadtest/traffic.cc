#include "client/loadtest/traffic.h"

#include <algorithm>
#include <utility>

#include "client/loadtest/conversation.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "weir/v1/server_info.pb.h"

namespace weir {
namespace {

constexpr absl::Duration kPauseAfterFailure = absl::Milliseconds(100);
constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kProbeTimeout = absl::Seconds(5);

double MedianMs(const LatencyHistogram& histogram) {
  return histogram.count() == 0 ? -1 : histogram.Quantile(1, 2) / 1e6;
}

std::string Whole(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

}  // namespace

TrafficPhase::TrafficPhase(const TrafficOptions& options, const Workload* workload, Transport* transport,
                           Loop* loop)
    : options_(options),
      workload_(workload),
      transport_(transport),
      loop_(loop),
      arrivals_(options.arrivals, options.rate, options.seed) {}

TrafficPhase::~TrafficPhase() = default;

void TrafficPhase::At(absl::Duration when, void (TrafficPhase::*task)()) {
  loop_->At(when, [weak = std::weak_ptr<bool>(alive_), this, task] {
    if (!weak.expired()) (this->*task)();
  });
}

void TrafficPhase::Start(LoopTask done) {
  done_ = std::move(done);
  start_ = last_ = last_tick_ = loop_->Now();
  const size_t models = workload_->models().size();
  tallies_.reserve(models + 1);
  for (size_t i = 0; i < models + (models > 1 ? 1 : 0); ++i) {
    tallies_.emplace_back(options_.limits, start_ + options_.warmup);
    tallies_.back().SetEnd(start_ + options_.duration);
  }
  tokens_at_tick_.assign(tallies_.size(), 0);
  last_rates_.assign(tallies_.size(), -1);
  // First, so that what is due at the very end is not started.
  if (options_.duration < absl::InfiniteDuration())
    At(start_ + options_.duration, &TrafficPhase::EndSchedule);
  At(start_ + kTick, &TrafficPhase::Tick);
  if (options_.arrivals == ArrivalKind::kClosed) {
    for (int64_t user = 0; user < options_.concurrency && !AllStarted(); ++user) StartConversation(start_);
  } else {
    next_arrival_ = start_ + arrivals_.Next();
    At(next_arrival_, &TrafficPhase::ScheduleArrival);
  }
}

// Starts what is due, also what should have been some time ago, and waits for the next.
void TrafficPhase::ScheduleArrival() {
  while (!schedule_over_ && !AllStarted() && next_arrival_ <= loop_->Now()) {
    StartConversation(next_arrival_);
    next_arrival_ = start_ + arrivals_.Next();
  }
  if (!schedule_over_ && !AllStarted()) At(next_arrival_, &TrafficPhase::ScheduleArrival);
}

bool TrafficPhase::AllStarted() const {
  return options_.conversations > 0 && started_ >= options_.conversations;
}

void TrafficPhase::StartConversation(absl::Duration scheduled) {
  auto conversation = std::make_shared<Conversation>(this, static_cast<uint64_t>(started_++));
  conversations_.emplace(conversation.get(), conversation);
  conversation->Start(scheduled);
}

void TrafficPhase::CallFailed(size_t model, const absl::Status& status) {
  Count(model, [&](TrafficTally& tally) { tally.Error(status); });
  if (status.code() == absl::StatusCode::kUnavailable && GetErrorDetails(status).reason == kConnectionLost)
    ProbeServer();
}

void TrafficPhase::ProbeServer() {
  if (probing_ || !lost_.ok()) return;
  probing_ = true;
  transport_->GetServerInfo(kProbeTimeout,
                            [weak = std::weak_ptr<bool>(alive_), this](
                                absl::Duration /*at*/, const absl::Status& status, const v1::ServerInfo&) {
                              if (weak.expired()) return;
                              probing_ = false;
                              if (status.code() == absl::StatusCode::kUnavailable ||
                                  status.code() == absl::StatusCode::kDeadlineExceeded) {
                                lost_ = status;
                                Interrupt();
                              }
                              FinishIfIdle();
                            });
}

void TrafficPhase::ConversationEnded(Conversation* conversation, absl::Duration at,
                                     const absl::Status& status) {
  last_ = std::max(last_, conversation->ended());
  const auto ended = conversations_.extract(conversation);  // lives, with `status`, until the end of this
  const bool closed = options_.arrivals == ArrivalKind::kClosed;
  if (closed && !schedule_over_ && !AllStarted()) {
    if (status.ok()) {
      StartConversation(at);
    } else {
      const absl::Duration pause = std::max(kPauseAfterFailure, GetErrorDetails(status).retry_after);
      loop_->At(loop_->Now() + pause, [weak = std::weak_ptr<bool>(alive_), this] {
        if (!weak.expired() && !schedule_over_ && !AllStarted()) StartConversation(loop_->Now());
        if (!weak.expired()) FinishIfIdle();
      });
    }
  }
  FinishIfIdle();
}

void TrafficPhase::EndSchedule() {
  if (schedule_over_) return;
  schedule_over_ = true;
  last_ = std::max(last_, loop_->Now());
  // A copy: one that ends changes the table.
  const auto all = conversations_;
  for (const auto& [pointer, conversation] : all) conversation->EndBetweenTurns();
  At(loop_->Now() + options_.drain, &TrafficPhase::Interrupt);
  FinishIfIdle();
}

void TrafficPhase::Interrupt() {
  if (finished_) return;
  stopping_ = true;
  schedule_over_ = true;
  last_ = std::max(last_, loop_->Now());
  for (TrafficTally& tally : tallies_) tally.SetEnd(loop_->Now());
  const auto all = conversations_;
  for (const auto& [pointer, conversation] : all) conversation->Stop();
  FinishIfIdle();
}

void TrafficPhase::FinishIfIdle() {
  const bool over = schedule_over_ || AllStarted();
  if (finished_ || !over || !conversations_.empty() || probing_) return;
  finished_ = true;
  loop_->Post(std::move(done_));
}

void TrafficPhase::Tick() {
  if (finished_) return;
  const absl::Duration now = loop_->Now();
  for (size_t i = 0; i < tallies_.size(); ++i) {
    tallies_[i].Tick(now);
    const int64_t tokens = tallies_[i].all_tokens();
    last_rates_[i] = static_cast<double>(tokens - std::exchange(tokens_at_tick_[i], tokens)) /
                     absl::ToDoubleSeconds(now - last_tick_);
  }
  last_tick_ = now;
  At(now + kTick, &TrafficPhase::Tick);
}

std::vector<LiveRow> TrafficPhase::Live() const {
  std::vector<LiveRow> rows;
  const absl::Duration passed = std::min(loop_->Now() - start_, options_.duration);
  std::string progress = Whole(passed);
  if (options_.duration < absl::InfiniteDuration())
    progress += " of " + absl::FormatDuration(options_.duration);
  if (options_.conversations > 0) progress = fmt::format("{} of {}", started_, options_.conversations);
  if (passed < options_.warmup) progress += ", warm-up";
  if (schedule_over_ && !finished_) progress += stopping_ ? ", ending" : ", draining";
  for (size_t i = 0; i < tallies_.size(); ++i) {
    const bool all = i >= workload_->models().size();
    rows.push_back({.what = all ? "all" : workload_->models()[i].name,
                    .progress = progress,
                    .running = tallies_[i].running(),
                    .completed = tallies_[i].completed(),
                    .failed = tallies_[i].failed(),
                    .tokens = tallies_[i].all_tokens(),
                    .tokens_per_second = last_rates_[i],
                    .ttft_ms = MedianMs(tallies_[i].ttft()),
                    .itl_ms = MedianMs(tallies_[i].itl())});
  }
  return rows;
}

TrafficFigures TrafficPhase::Described(const TrafficTally& tally) const {
  TrafficFigures figures = tally.Figures(last_);
  figures.arrivals = std::string(ArrivalName(options_.arrivals));
  figures.turns = workload_->turns();
  if (options_.arrivals == ArrivalKind::kClosed)
    figures.concurrency = options_.concurrency;
  else
    figures.rate = options_.rate;
  return figures;
}

TrafficFigures TrafficPhase::Figures() const { return Described(tallies_.back()); }

TrafficFigures TrafficPhase::ModelFigures(size_t model) const { return Described(tallies_[model]); }

}  // namespace weir
