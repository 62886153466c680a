// The growth phase on a simulated server: positions, times and bytes are exact.
#include "client/loadtest/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "client/loadtest/growth_report.h"
#include "runtime/base/error.h"
#include "tests/client/loadtest/simulated_loop.h"
#include "tests/client/loadtest/simulated_server.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SimulatedLoop;
using testing::SimulatedServer;
using testing::SimulatedServerOptions;
using ::testing::StartsWith;

class Growth : public ::testing::Test {
 protected:
  Growth() {
    server_options_.shape = {false, 640'000, 0, 0};
    options_.model = "m";
    options_.shape = server_options_.shape;
    options_.vocab_size = 50;
    options_.sessions = 4;
    options_.positions = {1000, 10'000, 40'000};
  }
  void UsePages(int64_t blocks) {
    server_options_.shape = options_.shape = {true, 0, 4096, 16};
    server_options_.kv_blocks = blocks;
  }
  const GrowthFigures& Run(std::function<void(SimulatedServer*, GrowthPhase*)> meanwhile = nullptr) {
    EXPECT_TRUE(CheckGrowthOptions(options_).ok()) << CheckGrowthOptions(options_);
    server_ = std::make_unique<SimulatedServer>(server_options_, &loop_);
    phase_ = std::make_unique<GrowthPhase>(options_, &loop_, server_.get());
    bool done = false;
    phase_->Start([&] { done = true; });
    if (meanwhile) meanwhile(server_.get(), phase_.get());
    loop_.Run();
    EXPECT_TRUE(done);
    EXPECT_TRUE(loop_.idle());
    return phase_->figures();
  }

  SimulatedLoop loop_;
  SimulatedServerOptions server_options_;
  GrowthOptions options_;
  std::unique_ptr<SimulatedServer> server_;
  std::unique_ptr<GrowthPhase> phase_;
};

TEST_F(Growth, BringsAllSessionsToEachPositionExactly) {
  for (const bool by_append : {true, false}) {
    options_.by_append = by_append;
    const GrowthFigures& figures = Run();
    EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant) << figures.why;
    EXPECT_EQ(figures.failure, "");
    EXPECT_EQ(figures.stopped, std::nullopt);
    ASSERT_EQ(figures.points.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const GrowthPoint& point = figures.points[i];
      EXPECT_EQ(point.position, options_.positions[i]);
      EXPECT_EQ(point.sample.tokens, 4 * options_.positions[i]);
      EXPECT_EQ(point.session_bytes, 640'000);
      EXPECT_EQ(point.sample.arena, 4 * 640'000);
      EXPECT_EQ(point.sample.anonymous, (10 << 20) + 4 * 640'000);
      EXPECT_EQ(point.sample.resident, point.sample.anonymous + (5 << 20));
      EXPECT_EQ(point.sample.proportional, point.sample.resident - (5 << 20) / 2);
      EXPECT_EQ(point.sample.device, std::nullopt);
    }
    // The last latencies were behind the last position.
    EXPECT_EQ(server_->tokens, 4 * (40'000 + options_.latency_tokens));
    EXPECT_EQ(figures.samples.back().tokens, server_->tokens);
    EXPECT_TRUE(server_->sessions.empty());
  }
}

TEST_F(Growth, LatenciesAreThoseOfThePosition) {
  server_options_.itl = [](int64_t position) { return absl::Microseconds(500 + position / 1000 * 100); };
  options_.latency_tokens = 5;
  const GrowthFigures& figures = Run();
  ASSERT_EQ(figures.points.size(), 3u);
  const double expected[] = {0.6, 1.5, 4.5};
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(figures.points[i].itl);
    const Distribution& itl = figures.points[i].itl->ms;
    EXPECT_EQ(itl.count, 4 * 4) << "a session's first token has no gap before it";
    EXPECT_DOUBLE_EQ(itl.mean, expected[i]);
    EXPECT_DOUBLE_EQ(figures.points[i].itl->p10_ms, expected[i]);
    EXPECT_DOUBLE_EQ(itl.max, expected[i]);
  }
  options_.latency_tokens = 0;
  EXPECT_EQ(Run().points[1].itl, std::nullopt);
  EXPECT_EQ(server_->tokens, 4 * 40'000);
}

// However the tokens are packed, the time of one is the same; in a single message there is no time.
TEST_F(Growth, TheTimePerTokenDoesNotHangOnMessages) {
  for (const int64_t packed : {1, 3, 8, 16}) {
    server_options_.tokens_per_message = packed;
    const GrowthFigures& figures = Run();
    for (const GrowthPoint& point : figures.points) {
      EXPECT_EQ(point.itl.has_value(), packed < 16) << packed;
      if (!point.itl) continue;
      EXPECT_EQ(point.itl->ms.count, 4 * (16 - packed));
      EXPECT_DOUBLE_EQ(point.itl->ms.mean, 2) << packed;
      EXPECT_DOUBLE_EQ(point.itl->ms.p50, 2);
      EXPECT_DOUBLE_EQ(point.itl->p10_ms, 2);
    }
    const nlohmann::ordered_json json = GrowthJson(figures)["points"][0]["itl_ms"];
    EXPECT_EQ(json.is_null(), packed == 16) << "not measured is not 0";
    if (packed == 16) EXPECT_THAT(GrowthText("m", figures), ContainsRegex("\n1000 .* - +- +- +- +-\n"));
  }
}

// Turns of one size, the first ones not measured, and nothing running when memory is read for the slopes.
TEST_F(Growth, SamplesAtRestAreThePointsOfTheSlopes) {
  const GrowthFigures& figures = Run();
  int64_t measured = 0, first = 0;
  for (const MemorySample& sample : figures.samples) {
    if (!sample.measured) continue;
    EXPECT_TRUE(sample.at_rest);
    EXPECT_EQ(sample.tokens % 4, 0);
    if (measured++ == 0) first = sample.tokens;
  }
  const int64_t piece = GrowthPiece(options_.positions);
  EXPECT_EQ(piece, 39'000 / 128);
  EXPECT_EQ(first, 4 * (1000 + options_.latency_tokens + 8 * piece));
  EXPECT_GT(measured, 115);
  EXPECT_EQ(figures.slopes.anonymous->count, measured);
  EXPECT_EQ(figures.slopes.anonymous->span, 4 * (40'000 + options_.latency_tokens) - first);
}

TEST_F(Growth, IsMeasuredAsItsPlanSays) {
  struct Way {
    std::vector<int64_t> positions;
    int64_t latency_tokens, piece;
  };
  const Way ways[] = {{{1000, 10'000, 40'000}, 16, 0},
                      {{1000, 40'000}, 0, 700},
                      {{5, 3000}, 16, 0},
                      {{1000, 1064, 1128, 1192, 1256, 3000}, 16, 64},
                      {{1000, 1100}, 16, 0},
                      {{100, 200, 40'000}, 5, 1999}};
  for (const Way& way : ways) {
    options_.positions = way.positions;
    options_.latency_tokens = way.latency_tokens;
    options_.piece = way.piece;
    const GrowthFigures& figures = Run();
    const auto measured = std::count_if(figures.samples.begin(), figures.samples.end(),
                                        [](const MemorySample& sample) { return sample.measured; });
    const GrowthPlan plan = PlanGrowth(options_);
    EXPECT_EQ(plan.samples, measured) << way.positions.size() << " " << way.piece;
    if (measured >= 3) EXPECT_EQ(plan.span, figures.slopes.anonymous->span) << way.piece;
  }
}

TEST_F(Growth, MemoryIsReadEverySecondWhileLongTurnsRun) {
  server_options_.per_prompt_token = absl::Milliseconds(10);  // 3 s for each turn
  Run();
  ASSERT_FALSE(server_->info_read_at.empty());
  for (size_t i = 1; i < server_->info_read_at.size(); ++i)
    ASSERT_LE(server_->info_read_at[i] - server_->info_read_at[i - 1], absl::Seconds(1.01));
  int64_t while_running = 0, before = 0;
  for (const MemorySample& sample : phase_->figures().samples) {
    while_running += !sample.at_rest;
    EXPECT_GE(sample.tokens, before);
    before = sample.tokens;
  }
  EXPECT_GT(while_running, 100);
}

TEST_F(Growth, FourBytesForEachTokenAreFoundInWhateverHeapTheyAre) {
  server_options_.heap = [](int64_t tokens) { return (10 << 20) + 4 * tokens / 4096 * 4096; };
  const GrowthFigures& leak = Run();
  EXPECT_EQ(leak.verdict, GrowthVerdict::kGrows);
  EXPECT_NEAR(leak.slopes.anonymous->bytes_per_token, 4, 0.01);
  EXPECT_THAT(leak.failure, HasSubstr("bytes per token and session"));
  // Twice the sessions, the same leak of each token: the same figure.
  options_.sessions = 8;
  EXPECT_NEAR(Run().slopes.anonymous->bytes_per_token, 4, 0.01);
  // Mapped weights that come into memory are no leak.
  server_options_.heap = [](int64_t) { return 10 << 20; };
  server_options_.files = [](int64_t tokens) { return 4 * tokens; };
  const GrowthFigures& files = Run();
  EXPECT_EQ(files.verdict, GrowthVerdict::kConstant) << files.why;
  EXPECT_NEAR(files.slopes.resident->bytes_per_token, 4, 1e-6);
  server_options_.tells_anonymous = false;
  EXPECT_EQ(Run().verdict, GrowthVerdict::kGrows) << "the resident set is all that is known then";
}

TEST_F(Growth, NoiseAndOneStepAreNoLeakGivenTokensEnough) {
  options_.positions = {10'000, 400'000};
  server_options_.heap = [](int64_t tokens) {
    const auto noise =
        static_cast<int64_t>(static_cast<uint64_t>(tokens) * 0x9E3779B97F4A7C15u >> 45);  // below 512 Ki
    return (10 << 20) + noise + (tokens > 700'000 ? 65'536 : 0);
  };
  const GrowthFigures& figures = Run();
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant) << figures.why;
  options_.positions = {1000, 20'000};
  const GrowthFigures& few = Run();
  EXPECT_EQ(few.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(few.failure, HasSubstr("for a verdict use --positions 1000,20000,"));
}

TEST_F(Growth, ASessionThatGrowsInTheAccountingFails) {
  server_options_.session_leak = [](int64_t position) { return position / 20'000; };
  const GrowthFigures& figures = Run();
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_THAT(figures.why, HasSubstr("accounts 640,001 bytes"));
}

TEST_F(Growth, PagedStateGrowsAsTheShapesSay) {
  UsePages(4 * 3000);
  const GrowthFigures& figures = Run();
  EXPECT_EQ(figures.verdict, GrowthVerdict::kAsExpected) << figures.why;
  EXPECT_EQ(figures.expected_bytes_per_token, 256);
  EXPECT_NEAR(figures.slopes.arena->bytes_per_token, 256, 0.5);
  EXPECT_EQ(figures.points[1].session_bytes, 10'000 / 16 * 4096);
  EXPECT_EQ(figures.failure, "");
}

TEST_F(Growth, WhereBlocksRunOutTheModelsGrowthEndsCleanly) {
  UsePages(4 * 1500);  // 24,000 tokens each
  const GrowthFigures& figures = Run();
  ASSERT_TRUE(figures.stopped.has_value());
  EXPECT_EQ(figures.stopped->reason, "KV_CAPACITY_EXHAUSTED");
  EXPECT_TRUE(figures.stopped->refusal);
  EXPECT_NEAR(static_cast<double>(figures.stopped->position), 24'000, GrowthPiece(options_.positions));
  EXPECT_EQ(figures.verdict, GrowthVerdict::kAsExpected) << figures.why;
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.points.size(), 2u);
  // What the others still got is counted.
  EXPECT_EQ(figures.samples.back().tokens, server_->tokens);
  EXPECT_TRUE(server_->sessions.empty());
}

TEST_F(Growth, TheContextLimitEndsIt) {
  UsePages(4 * 3000);
  server_options_.context_limit = options_.context_limit = 15'000;
  for (const bool by_append : {true, false}) {
    options_.by_append = by_append;
    const GrowthFigures& figures = Run();
    ASSERT_TRUE(figures.stopped.has_value());
    EXPECT_EQ(figures.stopped->reason, "CONTEXT_LIMIT_EXCEEDED");
    EXPECT_LE(figures.stopped->position, 15'000);
    EXPECT_GT(figures.stopped->position, 15'000 - GrowthPiece(options_.positions));
    EXPECT_EQ(figures.failure, "");
  }
}

// Positions for constant state are far beyond what a paged model holds.
TEST_F(Growth, AContextThatEndsEarlyStillGivesAVerdict) {
  UsePages(4 * 3000);
  server_options_.context_limit = options_.context_limit = 16'384;
  options_.sessions = 1;
  options_.positions = {1000, 10'000, 100'000, 1'000'000};
  const GrowthFigures& figures = Run();
  ASSERT_TRUE(figures.stopped.has_value());
  EXPECT_EQ(figures.stopped->reason, "CONTEXT_LIMIT_EXCEEDED");
  EXPECT_EQ(figures.verdict, GrowthVerdict::kAsExpected) << figures.why;
  EXPECT_EQ(figures.failure, "");
}

TEST_F(Growth, TooFewSlotsAreSaid) {
  server_options_.slots = 3;
  const GrowthFigures& figures = Run();
  EXPECT_EQ(figures.stopped->reason, "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_EQ(figures.stopped->position, 0);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_NE(figures.failure, "");
  EXPECT_TRUE(server_->sessions.empty());
  EXPECT_EQ(server_->tokens, 0);
}

TEST_F(Growth, AnInterruptAtAnyTimeLeavesNoSession) {
  for (const absl::Duration when :
       {absl::ZeroDuration(), absl::Milliseconds(1), absl::Milliseconds(3), absl::Milliseconds(20),
        absl::Milliseconds(200), absl::Milliseconds(500)}) {
    const GrowthFigures& figures = Run([&](SimulatedServer*, GrowthPhase* phase) {
      loop_.At(loop_.Now() + when, [phase] {
        phase->Interrupt();
        phase->Interrupt();
      });
    });
    EXPECT_THAT(figures.failure, StartsWith("interrupted with the sessions at position ")) << when;
    EXPECT_THAT(figures.failure, HasSubstr(" of 40,000: no verdict; ")) << when;
    EXPECT_TRUE(server_->sessions.empty()) << when;
    EXPECT_LT(server_->tokens, 4 * 40'000);
  }
}

TEST_F(Growth, AServerThatIsLostIsNamedWithWhatWasMeasured) {
  options_.server = "here:7070";
  const auto lose_after = [&](absl::Duration when) -> const GrowthFigures& {
    return Run([this, when](SimulatedServer* server, GrowthPhase*) {
      loop_.At(loop_.Now() + when, [server] { server->lost = true; });
    });
  };
  const GrowthFigures& figures = lose_after(absl::Milliseconds(200));
  ASSERT_TRUE(figures.stopped.has_value());
  EXPECT_EQ(figures.stopped->reason, "CONNECTION_LOST");
  EXPECT_EQ(figures.stopped->message, "the server at here:7070 was lost");
  EXPECT_FALSE(figures.stopped->refusal);
  EXPECT_EQ(figures.outcome, GrowthOutcome::kFailed);
  EXPECT_EQ(
      figures.why,
      "the server at here:7070 was lost with the sessions at position 8,008 of 40,000: no verdict; measured: "
      "position 1,000; not measured: positions 10,000 and 40,000");
  EXPECT_EQ(figures.failure, figures.why);
  EXPECT_EQ(std::string(phase_->lost().message()), "m: growth: " + figures.why);
  EXPECT_EQ(GetErrorDetails(phase_->lost()).reason, "CONNECTION_LOST");
  const std::string text = GrowthText("m", figures);
  EXPECT_THAT(text, HasSubstr("[!!] verdict: undecided: the server at here:7070 was lost"));
  for (const char* raw : {"the server is gone", "give no slope"}) EXPECT_THAT(text, Not(HasSubstr(raw)));
  EXPECT_EQ(
      lose_after(absl::ZeroDuration()).why,
      "the server at here:7070 was lost with the sessions at position 0 of 40,000: no verdict; nothing was "
      "measured");
}

// Sessions that come, tokens of another model, turns without a session: each takes memory of the process.
TEST_F(Growth, WhatAnotherClientTakesIsNotCalledGrowth) {
  using Others = std::function<void(int64_t readings, v1::ServerInfo * info)>;
  const auto sessions = [](int64_t readings, v1::ServerInfo* info) {
    const int64_t more = std::min<int64_t>(readings / 10, 4);
    info->mutable_models(0)->set_sessions(info->models(0).sessions() + more);
    info->mutable_models(0)->set_slots_free(info->models(0).slots_free() - more);
  };
  const auto another_model = [](int64_t readings, v1::ServerInfo* info) {
    v1::ModelUse* use = info->add_models();
    use->mutable_model()->set_name("models/other");
    use->set_generated_tokens(500 + readings / 8 * 10);
  };
  const auto turns = [](int64_t readings, v1::ServerInfo* info) {
    info->mutable_models(0)->set_generated_tokens(info->models(0).generated_tokens() + readings / 8);
  };
  const auto snapshots = [](int64_t readings, v1::ServerInfo* info) {
    info->set_snapshot_memory_used_bytes(readings > 50 ? 1'000'000 : 0);
  };
  const std::pair<Others, std::string> kinds[] = {{sessions, "4 sessions of m more"},
                                                  {another_model, " tokens of other)"},
                                                  {turns, " tokens of m)"},
                                                  {snapshots, "1,000,000 bytes of snapshots more"}};
  for (const auto& [others, says] : kinds) {
    server_options_.others = [others = others, readings = int64_t{0}](v1::ServerInfo* info) mutable {
      others(++readings, info);
      info->set_process_anonymous_bytes(info->process_anonymous_bytes() + readings * 65'536);
    };
    const GrowthFigures& figures = Run();
    EXPECT_GT(figures.slopes.anonymous->low, 1) << "would be a leak";
    EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided) << figures.why;
    EXPECT_EQ(figures.outcome, GrowthOutcome::kUndecided);
    EXPECT_THAT(figures.failure, HasSubstr("another client worked on the server ("));
    EXPECT_THAT(figures.failure, AllOf(HasSubstr(says), HasSubstr("run it alone")));
    EXPECT_THAT(GrowthJson(figures)["other_clients"].get<std::string>(),
                HasSubstr(says.substr(0, says.find(')'))));
    EXPECT_THAT(phase_->Live()[0].line, HasSubstr("; another client works on the server: "));
  }
}

TEST_F(Growth, WhatOthersHoldWithoutTouchingItDoesNotMatter) {
  const auto idle = [](v1::ServerInfo* info) {
    info->mutable_models(0)->set_sessions(info->models(0).sessions() + 2);
    info->mutable_models(0)->set_slots_free(info->models(0).slots_free() - 2);
    info->mutable_models(0)->set_kv_blocks_free(info->models(0).kv_blocks_free() - 50);
    info->mutable_models(0)->set_prompt_tokens(info->models(0).prompt_tokens() + 800);
    info->set_snapshot_memory_used_bytes(1000);
  };
  server_options_.others = idle;
  EXPECT_EQ(Run().verdict, GrowthVerdict::kConstant) << phase_->figures().why;
  EXPECT_EQ(phase_->figures().other_clients, "");
  UsePages(4 * 3000);
  EXPECT_EQ(Run().verdict, GrowthVerdict::kAsExpected) << phase_->figures().why;
  // A turn that has just ended, and is not out of the books yet, is nobody else's.
  server_options_.others = [readings = 0](v1::ServerInfo* info) mutable {
    info->mutable_models(0)->set_requests_running(++readings % 5 == 0 ? 1 : 0);
  };
  EXPECT_EQ(Run().verdict, GrowthVerdict::kAsExpected) << phase_->figures().why;
  server_options_.others = [](v1::ServerInfo* info) { info->mutable_models(0)->set_requests_waiting(3); };
  EXPECT_THAT(Run().why, HasSubstr("another client worked on the server (3 turns of m at a time)"));
}

TEST_F(Growth, ItsProgressIsALineOfItsOwn) {
  std::string line;
  Run([&](SimulatedServer*, GrowthPhase* phase) {
    loop_.At(loop_.Now() + absl::Milliseconds(200), [&line, phase] { line = phase->Live()[0].line; });
  });
  EXPECT_EQ(line, "4 sessions at position 8,008 of 40,000, 4 turns running, 32,032 tokens");
}

TEST_F(Growth, ALongWayTakesTurnsThatTheServerLikes) {
  EXPECT_EQ(GrowthPiece({1000, 1'000'000}), 1000);
  EXPECT_EQ(GrowthPiece({10'000, 1'000'000}), 4096);
  EXPECT_EQ(GrowthPiece({1000, 2000}), 64);
  EXPECT_EQ(GrowthPiece({5}), 5);
  EXPECT_EQ(GrowthPiece({1}), 1);
}

TEST_F(Growth, OptionsThatCannotBeAreRefused) {
  const auto message = [this] { return std::string(CheckGrowthOptions(options_).message()); };
  options_.positions = {1000, 1010};
  EXPECT_THAT(message(), HasSubstr("1010 comes after 1000"));
  options_.positions = {0};
  EXPECT_THAT(message(), HasSubstr("0 comes after 0"));
  options_.positions = {2000, 1000};
  EXPECT_NE(message(), "");
  options_.positions = {};
  EXPECT_NE(message(), "");
  options_.positions = {3000};
  EXPECT_EQ(message(),
            "between one position and none there is no slope: give two or more, such as 3000,100000");
  options_.positions = {400'000};
  EXPECT_THAT(message(), EndsWith("such as 1000,400000"));
  options_.positions = {1000, 1016};
  EXPECT_EQ(message(), "");
  options_.sessions = 0;
  EXPECT_NE(message(), "");
}

}  // namespace
}  // namespace weir
