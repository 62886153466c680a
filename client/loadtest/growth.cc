#include "client/loadtest/growth.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "client/loadtest/fan_out.h"
#include "client/loadtest/seeded_draws.h"
#include "client/loadtest/text_table.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "weir/v1/server_info.pb.h"

namespace weir {
namespace {

constexpr int kSampleAttempts = 3;
constexpr int kIdleAttempts = 25;  // before it begins: turns of traffic that was cancelled may still run
constexpr absl::Duration kSampleAgain = absl::Milliseconds(200);

// Ids that a prompt of the seed has at these positions of a session.
std::vector<int32_t> SyntheticIds(const GrowthOptions& options, int64_t session, int64_t position,
                                  int64_t count) {
  SeededDraws draws(options.seed, SeededDraws::Purpose::kPrompt,
                    (static_cast<uint64_t>(session) << 40) + static_cast<uint64_t>(position));
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(draws.Below(static_cast<uint64_t>(options.vocab_size)));
  return ids;
}

absl::Status ContextIsFull(const GrowthOptions& options) {
  return MakeError(absl::StatusCode::kResourceExhausted, "CONTEXT_LIMIT_EXCEEDED",
                   fmt::format("the context of {} holds {} tokens", options.model, options.context_limit));
}

}  // namespace

absl::Status CheckGrowthOptions(const GrowthOptions& options) {
  if (options.vocab_size < 1)
    return absl::InvalidArgumentError("growth needs the size of the model's vocabulary");
  return CheckGrowthWay(options);
}

// One turn of one session.
class GrowthPhase::Turn final : public TurnObserver {
 public:
  Turn(LatencyHistogram* gaps, std::function<void(const TurnResult&)> ended)
      : gaps_(gaps), ended_(std::move(ended)) {}
  void OnPromptInfo(absl::Duration, int64_t, int64_t) override {}
  void OnDelta(absl::Duration at, int64_t num_tokens, bool) override {
    if (num_tokens <= 0) return;
    if (tokens_ > 0 && gaps_ != nullptr) AddGap(absl::ToInt64Nanoseconds(at - last_), num_tokens);
    tokens_ += num_tokens;
    last_ = at;
  }
  void OnEnd(absl::Duration, const TurnResult& end) override {
    const std::function<void(const TurnResult&)> ended = std::move(ended_);
    ended(end);  // this may be gone now
  }
  int64_t tokens() const { return tokens_; }

  std::unique_ptr<RunningTurn> handle;

 private:
  // Shared evenly, to the nanosecond.
  void AddGap(int64_t gap, int64_t num_tokens) {
    const int64_t rest = gap % num_tokens;
    gaps_->Add(gap / num_tokens, num_tokens - rest);
    if (rest > 0) gaps_->Add(gap / num_tokens + 1, rest);
  }

  LatencyHistogram* const gaps_;
  std::function<void(const TurnResult&)> ended_;
  int64_t tokens_ = 0;
  absl::Duration last_;
};

GrowthPhase::GrowthPhase(GrowthOptions options, Loop* loop, Transport* transport)
    : options_(std::move(options)),
      plan_(PlanGrowth(options_)),
      loop_(loop),
      transport_(transport),
      pool_(options_.model, loop, transport),
      others_(options_.model) {
  figures_.way = options_;
  figures_.by_append = options_.by_append;
}

GrowthPhase::~GrowthPhase() { *alive_ = false; }

void GrowthPhase::Start(LoopTask done) {
  done_ = std::move(done);
  pool_.Create(
      options_.sessions, [this] { return interrupted_; }, [](absl::Duration) {}, [this] { Begin(); });
}

void GrowthPhase::Interrupt() {
  interrupted_ = true;
  for (const auto& turn : turns_)
    if (turn != nullptr && turn->handle != nullptr) turn->handle->Cancel();
}

void GrowthPhase::Then(void (GrowthPhase::*step)()) {
  if (Stopping())
    Finish();
  else
    (this->*step)();
}

void GrowthPhase::StopWith(int64_t position, const absl::Status& status) {
  if (Stopping()) return;
  const std::string reason = ReasonOrCode(status);
  figures_.stopped = GrowthStop{position, reason, std::string(status.message()),
                                absl::IsResourceExhausted(status), reason == kConnectionLost};
}

void GrowthPhase::Begin() {
  positions_.assign(static_cast<size_t>(pool_.size()), 0);
  turns_.resize(positions_.size());
  if (!pool_.refused().ok()) StopWith(0, pool_.refused());
  if (Stopping()) return Finish();
  ReadOthers(kIdleAttempts);
}

void GrowthPhase::ReadOthers(int attempts) {
  transport_->GetServerInfo(kShortCall, [this, attempts](absl::Duration at, const absl::Status& status,
                                                         const v1::ServerInfo& info) {
    if (attempts > 1 && !Stopping() && (!status.ok() || OtherClients::Busy(info))) {
      loop_->At(at + kSampleAgain, [this, attempts] { ReadOthers(attempts - 1); });
      return;
    }
    const absl::StatusOr<MemorySample> sample = status.ok() ? ReadWitnesses(info, options_.model) : status;
    if (!sample.ok()) {
      StopWith(0, sample.status());
      return Finish();
    }
    others_.Begin(info);
    figures_.others_arena =
        std::max<int64_t>(sample->arena - options_.sessions * options_.shape.fixed_bytes, 0);
    // From here on one timer looks at memory until the phase ends.
    SampleWhileRunning();
    Then(&GrowthPhase::NextRound);
  });
}

// --- the way to the next position ---

void GrowthPhase::NextRound() {
  const int64_t target = options_.positions[mark_];
  const int64_t left = target - positions_.front();
  const int64_t tokens = std::min(plan_.piece, left);
  if (tokens <= 0) return AtPosition();
  // A session that has nothing yet needs a token to go on from.
  const int64_t prompt = options_.by_append ? tokens : positions_.front() == 0 ? 1 : 0;
  RunTurns(prompt, tokens - prompt, nullptr, [this] { AfterRound(); });
}

void GrowthPhase::AfterRound() {
  SampleAtRest(kSampleAttempts, [this] { ReadAccounting(1, [this] { Then(&GrowthPhase::NextRound); }); });
}

void GrowthPhase::AtPosition() {
  point_ = GrowthPoint();
  point_.position = options_.positions[mark_];
  point_.sample = *rest_;
  ReadAccounting(pool_.size(), [this] { Then(&GrowthPhase::MeasureLatency); });
}

void GrowthPhase::MeasureLatency() {
  gaps_ = LatencyHistogram();
  if (options_.latency_tokens == 0) return AfterLatency();
  RunTurns(0, options_.latency_tokens, &gaps_, [this] { AfterLatency(); });
}

void GrowthPhase::AfterLatency() {
  if (gaps_.count() > 0) point_.itl = TimePerToken{gaps_.Summary(1e6), gaps_.Quantile(1, 10) / 1e6};
  figures_.points.push_back(point_);
  ++mark_;
  SampleAtRest(kSampleAttempts, [this] {
    if (mark_ == options_.positions.size()) return Finish();
    Then(&GrowthPhase::NextRound);
  });
}

// --- turns ---

void GrowthPhase::RunTurns(int64_t prompt, int64_t generate, LatencyHistogram* gaps, LoopTask finished) {
  const int64_t position = positions_.front();
  if (options_.context_limit > 0 && position + prompt + generate > options_.context_limit) {
    StopWith(position, ContextIsFull(options_));
    return finished();
  }
  running_ = true;
  round_target_ = TokensNow() + (prompt + generate) * pool_.size();
  FanOut::Run(
      pool_.size(), kCallsAtOnce,
      [=, this](int64_t index, std::function<void()> done) {
        StartTurn(index, prompt, generate, gaps, std::move(done));
      },
      [this] { return Stopping(); },
      [this, finished = std::move(finished)]() mutable {
        running_ = false;
        finished();
      });
}

void GrowthPhase::StartTurn(int64_t index, int64_t prompt, int64_t generate, LatencyHistogram* gaps,
                            std::function<void()> done) {
  const int64_t position = positions_[static_cast<size_t>(index)];
  TurnRequest request;
  request.session = pool_.id(index);
  request.prompt.token_ids = SyntheticIds(options_, index, position, prompt);
  request.max_tokens = generate;
  request.seed = options_.seed;
  auto& turn = turns_[static_cast<size_t>(index)];
  turn = std::make_unique<Turn>(gaps, [=, this, done = std::move(done)](const TurnResult& end) {
    EndTurn(index, position + prompt + generate, end);
    done();
  });
  turn->handle = transport_->StartTurn(std::move(request), turn.get());
}

void GrowthPhase::EndTurn(int64_t index, int64_t expected, const TurnResult& end) {
  turns_[static_cast<size_t>(index)].reset();
  int64_t& position = positions_[static_cast<size_t>(index)];
  if (!end.status.ok()) {
    turn_failed_ = true;
    return StopWith(position, end.status);
  }
  position = end.position;
  if (position == expected) return;
  if (position < expected)  // the only other end of a turn that ignores end-of-sequence ids
    return StopWith(position, ContextIsFull(options_));
  StopWith(position,
           MakeError(absl::StatusCode::kAborted, "POSITION_MISMATCH",
                     fmt::format("session '{}' stands at position {}, not at {}: somebody else uses it",
                                 pool_.id(index), position, expected)));
}

// --- witnesses ---

int64_t GrowthPhase::TokensNow() const {
  return std::accumulate(positions_.begin(), positions_.end(), int64_t{0});
}

int64_t GrowthPhase::LeastPosition() const {
  return positions_.empty() ? 0 : *std::min_element(positions_.begin(), positions_.end());
}

// A server that does not answer, or still has a turn in its books that has just ended, is asked again.
void GrowthPhase::SampleAtRest(int attempts, LoopTask then) {
  transport_->GetServerInfo(
      kShortCall, [this, attempts, then = std::move(then)](absl::Duration at, const absl::Status& status,
                                                           const v1::ServerInfo& info) mutable {
        const bool again = attempts > 1 && !Stopping();
        if (again && status.ok() && OtherClients::Busy(info) && !others_.seen())
          return SampleAgain(attempts, std::move(then));
        absl::StatusOr<MemorySample> sample = status.ok() ? ReadWitnesses(info, options_.model) : status;
        if (sample.ok()) {
          others_.ReadAtRest(info, turn_failed_ ? std::nullopt : std::optional(TokensNow()));
          TakeSampleAtRest(*std::move(sample), at);
        } else if (again) {
          return SampleAgain(attempts, std::move(then));
        } else {
          StopWith(LeastPosition(), sample.status());
        }
        then();
      });
}

void GrowthPhase::SampleAgain(int attempts, LoopTask then) {
  loop_->At(loop_->Now() + kSampleAgain, [this, attempts, then = std::move(then)]() mutable {
    SampleAtRest(attempts - 1, std::move(then));
  });
}

void GrowthPhase::TakeSampleAtRest(MemorySample sample, absl::Duration at) {
  sample.at = at;
  sample.tokens = TokensNow();
  sample.at_rest = true;
  sample.measured = LeastPosition() >= plan_.measured_from;
  rest_ = sample;
  figures_.samples.push_back(sample);
}

void GrowthPhase::SampleWhileRunning() {
  loop_->At(loop_->Now() + options_.sample_interval, [this, alive = alive_] {
    if (!*alive) return;
    SampleWhileRunning();
    if (!running_ || sampling_) return;
    sampling_ = true;
    transport_->GetServerInfo(kShortCall, [this, alive](absl::Duration at, const absl::Status& status,
                                                        const v1::ServerInfo& info) {
      if (!*alive) return;
      sampling_ = false;
      if (!running_ || !status.ok()) return;
      absl::StatusOr<MemorySample> sample = ReadWitnesses(info, options_.model);
      if (!sample.ok()) return;
      others_.ReadWhileRunning(info);
      sample->at = at;
      // What the server has computed since it was last at rest; another client's tokens may be among them.
      const int64_t done = TokensNow();
      const int64_t computed = rest_ ? rest_->tokens + sample->server_tokens - rest_->server_tokens : done;
      sample->tokens = std::clamp(computed, done, std::max(done, round_target_));
      figures_.samples.push_back(*sample);
    });
  });
}

void GrowthPhase::ReadAccounting(int64_t count, LoopTask then) {
  FanOut::Run(
      count, kCallsAtOnce,
      [this](int64_t index, std::function<void()> done) {
        transport_->GetSession(pool_.id(index), kShortCall,
                               [this, index, done = std::move(done)](
                                   absl::Duration, const absl::StatusOr<SessionFacts>& session) {
                                 if (!session.ok()) {
                                   StopWith(positions_[static_cast<size_t>(index)], session.status());
                                 } else {
                                   figures_.accounted.push_back({session->position, session->state_bytes});
                                   point_.session_bytes =
                                       std::max(point_.session_bytes, session->state_bytes);
                                 }
                                 done();
                               });
      },
      [this] { return Stopping(); }, std::move(then));
}

// --- the end ---

void GrowthPhase::Finish() {
  *alive_ = false;
  pool_.DeleteAll([this] {
    Conclude();
    loop_->Post(std::move(done_));
  });
}

void GrowthPhase::Conclude() {
  figures_.other_clients = others_.Text();
  JudgeGrowth(&figures_);
  const std::string lost =
      fmt::format("the server{} was lost", options_.server.empty() ? "" : " at " + options_.server);
  if (interrupted_) {
    JudgeCutShort("interrupted", LeastPosition(), GrowthOutcome::kUndecided, &figures_);
  } else if (figures_.stopped && figures_.stopped->lost) {
    figures_.stopped->message = lost;
    JudgeCutShort(lost, LeastPosition(), GrowthOutcome::kFailed, &figures_);
  } else if (pool_.left_behind() > 0 && figures_.failure.empty()) {
    figures_.outcome = GrowthOutcome::kFailed;
    const std::string why = GetErrorDetails(pool_.why_left()).reason == kConnectionLost
                                ? lost
                                : std::string(pool_.why_left().message());
    figures_.failure =
        fmt::format("all was measured, but {} sessions could not be deleted: {}", pool_.left_behind(), why);
  }
}

absl::Status GrowthPhase::lost() const {
  if (pool_.lost().ok() || figures_.failure.empty()) return pool_.lost();
  return MakeError(pool_.lost().code(), GetErrorDetails(pool_.lost()).reason,
                   fmt::format("{}: growth: {}", options_.model, figures_.failure));
}

std::vector<LiveRow> GrowthPhase::Live() const {
  LiveRow row;
  const auto running =
      std::count_if(turns_.begin(), turns_.end(), [](const auto& turn) { return turn != nullptr; });
  int64_t tokens = TokensNow();
  for (const auto& turn : turns_)
    if (turn != nullptr) tokens += turn->tokens();
  row.line = fmt::format("{} sessions at position {} of {}, {} turns running, {} tokens", options_.sessions,
                         GroupedNumber(LeastPosition()), GroupedNumber(options_.positions.back()), running,
                         GroupedNumber(tokens));
  if (others_.seen()) row.line += fmt::format("; another client works on the server: {}", others_.Text());
  return {row};
}

}  // namespace weir
