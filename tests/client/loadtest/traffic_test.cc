// Traffic against a scripted server in virtual time: every figure is exact.
#include "client/loadtest/traffic.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "client/rpc_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "tests/client/loadtest/scripted_transport.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using testing::ScriptedTransport;
using testing::ScriptedTurn;
using testing::SimulatedLoop;

WorkloadOptions OneModel(int turns = 1) {
  return {.models = {{.name = "a", .weight = 1, .vocab_size = 100, .eos_token_ids = {}}},
          .prompts = {},
          .prompt_tokens = {LengthSpec::Kind::kFixed, 3, 3},
          .output_tokens = {LengthSpec::Kind::kFixed, 5, 5},
          .turns = turns,
          .seed = 1};
}

// A loop, a server and one phase.
class TrafficTest : public ::testing::Test {
 protected:
  // Runs to the end, which has to come.
  TrafficFigures Run(const TrafficOptions& options, const WorkloadOptions& load = OneModel()) {
    Prepare(options, load);
    Finish();
    return phase_->Figures();
  }
  void Prepare(const TrafficOptions& options, const WorkloadOptions& load = OneModel()) {
    workload_ = std::make_unique<Workload>(load);
    phase_ = std::make_unique<TrafficPhase>(options, workload_.get(), &server_, &loop_);
    phase_->Start([this] {
      ++done_;
      loop_.Stop();
    });
  }
  void Finish() {
    loop_.Run();
    EXPECT_EQ(done_, 1);
    EXPECT_EQ(server_.in_flight, 0);
    EXPECT_TRUE(server_.sessions.empty());
  }

  SimulatedLoop loop_;
  ScriptedTransport server_{&loop_};
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<TrafficPhase> phase_;
  int done_ = 0;
};

// 10 ms of service for one request after the other, and nothing between 20 s and 22 s.
class StallingServer {
 public:
  explicit StallingServer(SimulatedLoop* loop) : loop_(loop) {}
  ScriptedTurn operator()(const TurnRequest&, int64_t) {
    const absl::Duration now = loop_->Now();
    absl::Duration begin = std::max(now, free_);
    if (begin >= absl::Seconds(20) && begin < absl::Seconds(22)) begin = absl::Seconds(22);
    free_ = begin + absl::Milliseconds(10);
    return ScriptedTurn::Even(free_ - now, absl::ZeroDuration(), 1);
  }

 private:
  SimulatedLoop* const loop_;
  absl::Duration free_;
};

TEST_F(TrafficTest, LTG_01_LatenciesAreCountedFromTheSchedule) {
  server_.turn = StallingServer(&loop_);
  TrafficOptions options = {.arrivals = ArrivalKind::kConstant, .rate = 10, .duration = absl::Seconds(60)};
  options.limits.e2e = absl::Milliseconds(100);
  const TrafficFigures figures = Run(options);
  EXPECT_EQ(figures.scheduled, 600);
  EXPECT_EQ(figures.completed, 600);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.p50, 10);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.p99, 1470);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.p999, 2010);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.max, 2010);
  EXPECT_DOUBLE_EQ(figures.ttft_ms.p99, 1470);
  // 22 of the 600 are above 100 ms.
  EXPECT_DOUBLE_EQ(figures.requests_per_second.value(), 10);
  EXPECT_DOUBLE_EQ(figures.goodput_per_second.value(), (600 - 22) / 60.0);
  EXPECT_EQ(figures.seconds, 60);
  EXPECT_EQ(server_.max_in_flight, 21);  // sent when due, whatever the server does
  EXPECT_EQ(figures.send_lag_ms.max, 0);
  ASSERT_EQ(figures.timeline.size(), 60u);
  EXPECT_EQ(figures.timeline[19].tokens, 10);
  EXPECT_EQ(figures.timeline[20].tokens, 0);
  EXPECT_EQ(figures.timeline[20].running, 10);
  EXPECT_EQ(figures.timeline[20].ttft_p50_ms, std::nullopt);
}

// A load test that is held up itself sends late; what was due is measured all the same.
TEST_F(TrafficTest, ALoadTestThatIsHeldUpShowsItAndHidesNothing) {
  server_.turn = [](const TurnRequest&, int64_t) {
    return ScriptedTurn::Even(absl::Milliseconds(10), {}, 1);
  };
  Prepare({.arrivals = ArrivalKind::kConstant, .rate = 10, .duration = absl::Seconds(1)});
  // Nothing runs for 250 ms from 0.45 s on: three requests are late, by 200, 100 and 0 ms.
  loop_.At(absl::Milliseconds(450), [this] { loop_.Sleep(absl::Milliseconds(250)); });
  Finish();
  const TrafficFigures figures = phase_->Figures();
  EXPECT_EQ(figures.completed, 10);
  EXPECT_DOUBLE_EQ(figures.send_lag_ms.max, 200);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.max, 210);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.p90, 110);
  EXPECT_DOUBLE_EQ(figures.e2e_ms.p50, 10);
}

TEST_F(TrafficTest, LTG_05_OkWithoutATokenIsNoSuccess) {
  server_.turn = [](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(100), absl::Milliseconds(100), 10);
    if (number % 10 == 9) turn.messages.clear();
    return turn;
  };
  TrafficOptions options = {.concurrency = 3, .conversations = 30};
  const TrafficFigures figures = Run(options);
  EXPECT_EQ(figures.scheduled, 30);
  EXPECT_EQ(figures.completed, 27);
  EXPECT_EQ(figures.empty, 3);
  EXPECT_EQ(figures.failed, 0);
  EXPECT_EQ(figures.generated_tokens, 270);
  // 30 turns of 1 s, three at a time.
  EXPECT_EQ(figures.seconds, 10);
  EXPECT_EQ(figures.tokens_per_second, 27.0);
  EXPECT_EQ(figures.requests_per_second, 2.7);
  EXPECT_EQ(figures.ttft_ms.count, 27);
  EXPECT_EQ(figures.e2e_ms.count, 27);
}

TEST_F(TrafficTest, LTG_07_AStreamIsItsMessagesAndNotOneLongCall) {
  server_.turn = [](const TurnRequest&, int64_t) {
    return ScriptedTurn::Even(absl::Milliseconds(20), absl::Milliseconds(20), 50);
  };
  const TrafficFigures figures = Run({.concurrency = 10, .conversations = 10});
  EXPECT_EQ(figures.generated_tokens, 500);
  EXPECT_EQ(figures.itl_ms.count, 490);
  EXPECT_EQ(figures.itl_ms.p50, 20);
  EXPECT_EQ(figures.itl_ms.max, 20);
  EXPECT_EQ(figures.ttft_ms.max, 20);
  EXPECT_EQ(figures.tpot_ms.p99, 20);
  EXPECT_EQ(figures.e2e_ms.p50, 1000);
  EXPECT_EQ(figures.stream_tokens_per_second.p50, 50);
  EXPECT_EQ(figures.tokens_per_second, 500.0);
  EXPECT_EQ(figures.prompt_tokens, 30);
}

TEST_F(TrafficTest, AClosedLoopKeepsItsUsersBusyAndNoMore) {
  server_.turn = [](const TurnRequest&, int64_t number) {
    return ScriptedTurn::Even(absl::Milliseconds(7 + number % 5), absl::Milliseconds(3), 4);
  };
  TrafficOptions options = {
      .concurrency = 7, .duration = absl::Seconds(10), .warmup = absl::Seconds(2), .think = {}};
  const TrafficFigures figures = Run(options);
  EXPECT_EQ(server_.max_in_flight, 7);
  ASSERT_EQ(figures.timeline.size(), 8u);
  for (const TimelineSecond& second : figures.timeline) EXPECT_EQ(second.running, 7) << second.second;
  EXPECT_EQ(figures.seconds, 8);
  EXPECT_GT(figures.drain_seconds, 0);
  EXPECT_LT(figures.drain_seconds, 0.02);
  // The warm-up's requests are not among them, nor are their tokens; a few that began in it end behind it.
  EXPECT_LT(figures.scheduled, static_cast<int64_t>(server_.requests.size()) * 9 / 10);
  EXPECT_EQ(figures.completed, figures.scheduled);
  EXPECT_EQ(figures.generated_tokens, 4 * figures.completed);
  EXPECT_EQ(figures.all_generated_tokens, 4 * static_cast<int64_t>(server_.requests.size()));
  EXPECT_EQ(figures.tokens_per_second, static_cast<double>(figures.tokens_in_time) / 8);
  EXPECT_LT(figures.tokens_in_time, figures.all_generated_tokens);
}

TEST_F(TrafficTest, RequestsAreThoseOfTheWorkloadInItsOrder) {
  Run({.arrivals = ArrivalKind::kPoisson, .rate = 5, .conversations = 40, .seed = 9});
  ASSERT_EQ(server_.requests.size(), 40u);
  for (uint64_t i = 0; i < 40; ++i) {
    const PlannedTurn planned = workload_->Turn(i, 0);
    EXPECT_EQ(server_.requests[i].prompt.token_ids, planned.prompt.token_ids);
    EXPECT_EQ(server_.requests[i].seed, planned.sampling_seed);
    EXPECT_EQ(server_.requests[i].max_tokens, 5);
    EXPECT_TRUE(server_.requests[i].ignore_eos);
    EXPECT_EQ(server_.requests[i].model, "a");
    EXPECT_EQ(server_.requests[i].session, "");
  }
}

TEST_F(TrafficTest, SessionsAreCreatedUsedInTurnsAndDeleted) {
  server_.call_time = absl::Milliseconds(4);
  server_.turn = [](const TurnRequest&, int64_t) {
    return ScriptedTurn::Even(absl::Milliseconds(10), {}, 1);
  };
  TrafficOptions options = {.concurrency = 2, .conversations = 4, .think = absl::Milliseconds(500)};
  const TrafficFigures figures = Run(options, OneModel(/*turns=*/3));
  EXPECT_EQ(server_.created, 4);
  EXPECT_EQ(server_.deleted, 4);
  EXPECT_EQ(figures.scheduled, 12);
  EXPECT_EQ(figures.completed, 12);
  EXPECT_EQ(figures.turns, 3);
  EXPECT_EQ(figures.ttft_ms.p50, 10);
  EXPECT_EQ(figures.ttft_ms.max, 14);  // the first turn's waits for its session
  EXPECT_EQ(server_.max_in_flight, 2);
  std::map<std::string, int> turns;
  for (const TurnRequest& request : server_.requests) ++turns[request.session];
  ASSERT_EQ(turns.size(), 4u);
  for (const auto& [session, count] : turns) EXPECT_EQ(count, 3) << session;
  // Two after each other of 4 + 10 + 500 + 10 + 500 + 10 + 4 ms; the last deletion is not measured.
  EXPECT_DOUBLE_EQ(figures.seconds, 2.072);
}

TEST_F(TrafficTest, ErrorsAreCountedByReasonAndNotTriedAgain) {
  const absl::Status full = MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                      "10 turns are waiting", {}, absl::Milliseconds(700));
  server_.turn = [&](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), 2);
    if (number == 1) turn.messages.clear();
    if (number == 1) turn.status = full;
    if (number == 3) turn.status = absl::InternalError("without a reason");
    return turn;
  };
  const TrafficFigures figures = Run({.concurrency = 1, .conversations = 5});
  EXPECT_EQ(server_.requests.size(), 5u);
  EXPECT_EQ(figures.completed, 3);
  EXPECT_EQ(figures.failed, 2);
  EXPECT_THAT(figures.errors, ElementsAre(Pair("INTERNAL", 1), Pair("QUEUE_FULL", 1)));
  EXPECT_THAT(figures.error_messages,
              ElementsAre(Pair("INTERNAL", "without a reason"), Pair("QUEUE_FULL", "10 turns are waiting")));
  // What a broken stream showed before counts for what was seen of it, and for nothing as a whole.
  EXPECT_EQ(figures.ttft_ms.count, 4);
  EXPECT_EQ(figures.e2e_ms.count, 3);
  EXPECT_EQ(figures.generated_tokens, 8);
  // Five turns of 20 ms, and after the refusals the 700 ms that the server advised and 100 ms.
  EXPECT_DOUBLE_EQ(figures.seconds, 0.9);
}

TEST_F(TrafficTest, ARefusedSessionIsARequestThatFailed) {
  server_.create = [](int64_t number) {
    return number == 0
               ? MakeError(absl::StatusCode::kResourceExhausted, "SESSION_CAPACITY_EXHAUSTED", "no slot")
               : absl::OkStatus();
  };
  const TrafficFigures figures = Run({.concurrency = 1, .conversations = 2}, OneModel(2));
  EXPECT_EQ(figures.scheduled, 3);
  EXPECT_EQ(figures.completed, 2);
  EXPECT_EQ(figures.failed, 1);
  EXPECT_THAT(figures.errors, ElementsAre(Pair("SESSION_CAPACITY_EXHAUSTED", 1)));
  EXPECT_EQ(server_.deleted, 1);  // nothing to delete after a refusal
}

// The server may have made the session whose creation was not answered in time.
TEST_F(TrafficTest, ASessionInDoubtIsDeleted) {
  server_.create = [](int64_t) { return absl::DeadlineExceededError("late"); };
  server_.delete_status = absl::OkStatus();
  const TrafficFigures figures = Run({.concurrency = 1, .conversations = 1}, OneModel(2));
  EXPECT_EQ(figures.failed, 1);
  EXPECT_EQ(server_.deleted, 1);
  EXPECT_THAT(figures.errors, ElementsAre(Pair("DEADLINE_EXCEEDED", 1)));  // and not that it was not there
}

TEST_F(TrafficTest, InterruptedTrafficIsReportedAndLeavesNothingBehind) {
  server_.busy_deletions = 5;  // the cancelled turns still run on the server
  server_.call_time = absl::Milliseconds(1);
  server_.turn = [](const TurnRequest&, int64_t number) {
    return ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10),
                              number < 8 ? 10 : 1'000'000 / 100);
  };
  Prepare({.concurrency = 8, .duration = absl::Seconds(60), .think = absl::Milliseconds(300)}, OneModel(2));
  loop_.At(absl::Milliseconds(2500), [this] {
    phase_->Interrupt();
    phase_->Interrupt();
  });
  Finish();
  const TrafficFigures figures = phase_->Figures();
  EXPECT_EQ(figures.seconds, 2.5);
  EXPECT_EQ(figures.completed, 8);
  EXPECT_EQ(figures.cancelled, 8);
  EXPECT_TRUE(figures.errors.empty());
  EXPECT_EQ(server_.deleted, 8);
  EXPECT_LT(loop_.Now(), absl::Seconds(3));
  // Their tokens count up to the end; a turn that was cut off has no length.
  EXPECT_EQ(figures.e2e_ms.count, 8);
  EXPECT_EQ(figures.ttft_ms.count, 16);
  EXPECT_GT(figures.generated_tokens, 80);
}

TEST_F(TrafficTest, ConversationsBetweenTurnsEndWithTheSchedule) {
  Prepare({.concurrency = 3, .duration = absl::Seconds(1), .think = absl::Seconds(100)}, OneModel(2));
  Finish();
  EXPECT_EQ(loop_.Now(), absl::Seconds(1));
  EXPECT_EQ(phase_->Figures().completed, 3);
  EXPECT_EQ(server_.deleted, 3);
}

TEST_F(TrafficTest, WhatHangsIsCancelledWhenTheDrainIsOver) {
  server_.turn = [](const TurnRequest&, int64_t number) {
    return ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), number == 2 ? 100'000 : 2);
  };
  Prepare({.arrivals = ArrivalKind::kConstant,
           .rate = 1,
           .duration = absl::Seconds(10),
           .drain = absl::Seconds(5)});
  Finish();
  const TrafficFigures figures = phase_->Figures();
  EXPECT_EQ(figures.completed, 9);
  EXPECT_EQ(figures.cancelled, 1);
  EXPECT_EQ(figures.seconds, 10);
  EXPECT_EQ(figures.drain_seconds, 5);
}

TEST_F(TrafficTest, ALostServerEndsThePhaseAndALostConnectionDoesNot) {
  const absl::Status broken =
      MakeError(absl::StatusCode::kUnavailable, kConnectionLost, "lost the connection");
  server_.turn = [&](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(100), absl::Milliseconds(100), 10);
    if (number == 5 || number == 20) turn.status = broken;
    return turn;
  };
  Prepare({.concurrency = 2, .duration = absl::Seconds(60)});
  loop_.At(absl::Seconds(8), [&] { server_.server_info_status = broken; });
  Finish();
  const TrafficFigures figures = phase_->Figures();
  EXPECT_EQ(phase_->lost(), broken);
  EXPECT_LT(loop_.Now(), absl::Seconds(13));
  EXPECT_GT(loop_.Now(), absl::Seconds(9));
  EXPECT_EQ(figures.failed, 2);
  EXPECT_EQ(figures.cancelled, 1);
  EXPECT_GT(figures.completed, 15);
  EXPECT_THAT(figures.errors, ElementsAre(Pair("CONNECTION_LOST", 2)));
}

TEST_F(TrafficTest, MixedModelsAreCountedEachAndTogether) {
  WorkloadOptions load = OneModel();
  load.models = {{.name = "fast", .weight = 3, .vocab_size = 100},
                 {.name = "slow", .weight = 1, .vocab_size = 100}};
  server_.turn = [](const TurnRequest& request, int64_t) {
    return ScriptedTurn::Even(absl::Milliseconds(request.model == "fast" ? 10 : 40), absl::Milliseconds(10),
                              5);
  };
  Prepare({.concurrency = 4, .conversations = 1000}, load);
  Finish();
  const TrafficFigures all = phase_->Figures(), fast = phase_->ModelFigures(0),
                       slow = phase_->ModelFigures(1);
  EXPECT_EQ(all.completed, 1000);
  EXPECT_EQ(fast.completed + slow.completed, 1000);
  EXPECT_NEAR(static_cast<double>(fast.completed), 750, 83);
  EXPECT_EQ(fast.ttft_ms.max, 10);
  EXPECT_EQ(slow.ttft_ms.mean, 40);
  EXPECT_EQ(all.ttft_ms.max, 40);
  EXPECT_EQ(all.itl_ms.count, 4000);
  EXPECT_EQ(all.seconds, fast.seconds);
  EXPECT_DOUBLE_EQ(all.tokens_per_second.value(),
                   fast.tokens_per_second.value() + slow.tokens_per_second.value());
  const std::vector<LiveRow> rows = phase_->Live();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].what, "fast");
  EXPECT_EQ(rows[2].what, "all");
  EXPECT_EQ(rows[2].tokens, 5000);
  EXPECT_EQ(rows[2].progress, "1000 of 1000");
}

}  // namespace
}  // namespace weir
