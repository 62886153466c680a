// What the engine counts and measures: exact values by a clock of our own.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/runtime/engine/engine_calls.h"
#include "tests/runtime/engine/runner_harness.h"

namespace weir::testing {
namespace {

constexpr absl::Time kStart = absl::FromUnixSeconds(1'000'000);
absl::Time measured_now = kStart;

// Each step of the model takes 20 ms by the clock that measures.
class EngineMetricsTest : public ::testing::Test {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.now = [] { return measured_now; };
    return options;
  }
  void SetUp() override {
    measured_now = kStart;
    harness_.fake->on_step = [](const StepInput&, const StepState&) {
      measured_now += absl::Milliseconds(20);
    };
  }
  const RunnerMetrics& metrics() const { return harness_.runner().metrics(); }
  int64_t Ended(TurnEnding end) const { return metrics().ended[static_cast<size_t>(end)].value(); }
  int64_t AllEnded() const {
    int64_t all = 0;
    for (const EventCounter& ended : metrics().ended) all += ended.value();
    return all;
  }
  int64_t Rejected(std::string_view reason) const {
    for (size_t i = 0; i < Rejections::kReasons.size(); ++i)
      if (Rejections::kReasons[i] == reason) return metrics().rejections.count(i);
    ADD_FAILURE() << reason;
    return -1;
  }

  mutable RunnerHarness harness_{{.eos_id = 7}, {.slots = 2}, Options()};
};

TEST(HistogramTest, AValueIsInTheFirstBucketWhoseBoundItDoesNotExceed) {
  static constexpr double kBounds[] = {0.5, 1, 2};
  Histogram histogram(kBounds);
  for (const double value : {-1.0, 0.0, 0.5, 0.75, 1.0, 2.0, 2.5, 1e9}) histogram.Observe(value);
  const HistogramReading reading = histogram.Read();
  EXPECT_EQ(reading.counts, (std::vector<int64_t>{3, 2, 1, 2}));
  EXPECT_EQ(reading.count(), 8);
  EXPECT_DOUBLE_EQ(reading.sum, 1e9 + 6.75);
}

TEST_F(EngineMetricsTest, TimesOfATurn) {
  TurnParams params = RunnerHarness::Greedy({1}, 5);
  params.ignore_eos = true;
  params.arrival = kStart - absl::Milliseconds(100);  // tokenizing took so long
  EXPECT_TRUE(harness_.Run(params).finish);
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({1}, 1)).finish);  // no gap, no time per token
  const HistogramReading first = metrics().time_to_first_token.Read();
  EXPECT_EQ(first.count(), 2);
  EXPECT_NEAR(first.sum, 0.120 + 0.120, 1e-9);  // the second arrived 100 ms before its step by the same clock
  const HistogramReading gaps = metrics().inter_token_latency.Read();
  EXPECT_EQ(gaps.count(), 4);
  EXPECT_NEAR(gaps.sum, 0.080, 1e-9);
  const HistogramReading per_token = metrics().time_per_output_token.Read();
  EXPECT_EQ(per_token.count(), 1);
  EXPECT_NEAR(per_token.sum, 0.020, 1e-9);
  EXPECT_EQ(metrics().request_duration.Read().count(), 2);
  EXPECT_NEAR(metrics().request_duration.Read().sum, 0.200 + 0.120, 1e-9);
  EXPECT_EQ(metrics().step_duration.Read().count(), 6);
  EXPECT_NEAR(metrics().step_duration.Read().sum, 0.120, 1e-9);
  EXPECT_EQ(metrics().step_tokens.Read().sum, 6);
  EXPECT_EQ(metrics().generated_tokens.value(), 6);
}

TEST_F(EngineMetricsTest, EveryTurnThatBeganEndsOnceAndForOneReason) {
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({1}, 3)).finish);
  TurnParams scored = RunnerHarness::Greedy({1, 2, 3}, 0);
  scored.score = true;
  EXPECT_TRUE(harness_.Run(scored).finish);
  ASSERT_TRUE(harness_.Create("s").ok());
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({1, 2, 3, 4, 5}, 0, "s")).finish);
  EXPECT_EQ(Ended(TurnEnding::kMaxTokens), 1);
  EXPECT_EQ(Ended(TurnEnding::kScored), 1);
  EXPECT_EQ(Ended(TurnEnding::kAppended), 1);
  EXPECT_EQ(metrics().missed_without_session.value(), 1 + 3);
  EXPECT_EQ(metrics().missed_in_new_session.value(), 5);
  EXPECT_EQ(metrics().reused_tokens.value(), 0);
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({6}, 1, "s")).finish);
  EXPECT_EQ(metrics().reused_tokens.value(), 5);

  // One runs, one waits for its slot; both are cancelled, and so is one by its deadline.
  const auto running = harness_.Submit(RunnerHarness::Greedy({1}, 1000));
  harness_.Step();
  const auto in_line = harness_.Submit(RunnerHarness::Greedy({1}, 1000));
  TurnParams late = RunnerHarness::Greedy({1}, 1000);
  late.deadline = harness_.now;
  const auto expired = harness_.Submit(late);
  running->Cancel();
  in_line->Cancel();
  harness_.Step();
  EXPECT_EQ(Ended(TurnEnding::kCancelled), 2);
  EXPECT_EQ(Ended(TurnEnding::kDeadlineExceeded), 1);

  // Refused, so it never began.
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({}, 1)).error);
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({1}, 1, "nobody")).error);
  EXPECT_EQ(Rejected("INVALID_ARGUMENT"), 1);
  EXPECT_EQ(Rejected("NOT_FOUND"), 1);

  const auto last = harness_.Submit(RunnerHarness::Greedy({1}, 1000));
  harness_.Step();
  WakeList wake;
  harness_.runner().FailAll(absl::UnavailableError("the end"), &wake);
  EXPECT_EQ(Ended(TurnEnding::kUnavailable), 1);
  EXPECT_EQ(metrics().started.value(), 8);
  EXPECT_EQ(AllEnded(), 8);
  EXPECT_EQ(metrics().request_duration.Read().count(), 8);
}

TEST_F(EngineMetricsTest, TotalsAreThoseOfAllSessionsWhateverHappenedToThem) {
  RunnerHarness harness({.context_limit = 2000, .paged = true}, {.slots = 8, .kv_blocks = 128});
  const auto expect_exact = [&](const char* after) {
    std::vector<SessionInfo> all;
    harness.sessions().List("", "", 100, &all);
    int64_t positions = 0, furthest = 0, bytes = 0;
    for (const SessionInfo& info : all) {
      positions += info.position;
      bytes += info.state_bytes;
      furthest = std::max(furthest, info.position);
    }
    const RunnerStats stats = harness.runner().Stats();
    EXPECT_EQ(stats.session_positions, positions) << after;
    EXPECT_EQ(stats.max_session_position, furthest) << after;
    EXPECT_EQ(stats.session_state_bytes, bytes) << after;
    EXPECT_EQ(stats.sessions, static_cast<int64_t>(all.size()));
  };
  std::vector<int32_t> prompt(70);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(harness.Create(id).ok());
  expect_exact("create");
  for (auto& id : prompt) id %= 64;
  EXPECT_TRUE(harness.Run(RunnerHarness::Greedy(prompt, 20, "a")).finish);
  EXPECT_TRUE(harness.Run(RunnerHarness::Greedy({1, 2}, 3, "b")).finish);
  expect_exact("turns");
  ASSERT_TRUE(harness.Snapshot("b", "early").ok());
  EXPECT_TRUE(harness.Run(RunnerHarness::Greedy({3}, 200, "b")).finish);
  expect_exact("the furthest is another");
  ASSERT_TRUE(harness.sessions().Fork("b", "", "", "d", harness.now).ok());
  expect_exact("fork");
  ASSERT_TRUE(harness.Rollback("b", "early").ok());
  expect_exact("rollback");
  ASSERT_TRUE(harness.sessions().Delete("d", "", "").ok());
  expect_exact("the furthest is gone");
  ASSERT_TRUE(harness.Import("e", harness.Export("a")).ok());
  expect_exact("import");
  const auto running = harness.Submit(RunnerHarness::Greedy({5}, 500, "c"));
  for (int i = 0; i < 150; ++i) harness.Step();
  expect_exact("a turn that runs");
  running->Cancel();
  harness.Step();
  expect_exact("cancel");
  harness.now += absl::Hours(1);
  harness.Step();
  expect_exact("they expired");
  EXPECT_EQ(harness.runner().Stats().sessions, 0);
}

// Whoever has a token finds it counted, so a scrape never shows fewer than clients have.
TEST(EngineCounters, NobodySeesATokenBeforeItIsCounted) {
  std::vector<EngineModel> models;
  models.push_back(MakeFakeEngineModel({}, {.slots = 4}));
  auto engine = Engine::Create(CreateTestDevice(1), std::move(models), {});
  ASSERT_TRUE(engine.ok());
  const RunnerMetrics& metrics = (*engine)->metrics(0);
  int64_t seen = 0;
  for (int turn = 0; turn < 200; ++turn) {
    auto stream = (*engine)->Submit(RunnerHarness::Greedy({1, 2}, 20), [] {});
    ASSERT_TRUE(stream.ok());
    // Never idle: looks all the time, as a busy reader does that no notifier wakes.
    Collected got;
    while (!got.ended()) {
      got.Take(stream->get());
      EXPECT_GE(metrics.generated_tokens.value(), seen + static_cast<int64_t>(got.ids.size()));
      if (got.ended())
        EXPECT_EQ(metrics.ended[static_cast<size_t>(TurnEnding::kMaxTokens)].value(), turn + 1);
    }
    seen += 20;
    EXPECT_EQ(metrics.generated_tokens.value(), seen);
    EXPECT_EQ(metrics.time_to_first_token.Read().count(), turn + 1);
    EXPECT_EQ(metrics.inter_token_latency.Read().count(), 19 * (turn + 1));
  }
}

}  // namespace
}  // namespace weir::testing
