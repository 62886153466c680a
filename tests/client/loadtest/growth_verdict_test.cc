// What the growth phase makes of figures that are given to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/loadtest/growth_figures.h"
#include "client/loadtest/growth_plan.h"
#include "client/loadtest/growth_report.h"
#include "client/loadtest/run.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr StateShape kFixed = {false, 1000, 0, 0};
constexpr StateShape kPaged = {true, 64, 4096, 16};

// Of two sessions at positions 1,000 to 101,000 in 40 steps, as a server would show whose process takes
// `leak` bytes for each token.
GrowthFigures FiguresOf(const StateShape& shape, double leak, int64_t steps = 40, int64_t last = 101'000) {
  GrowthFigures figures;
  figures.way.shape = shape;
  figures.way.sessions = 2;
  figures.way.positions = {1000, last};
  figures.way.latency_tokens = 0;
  figures.way.piece = (last - 1000) / steps;
  for (int64_t i = 0; i <= steps; ++i) {
    const int64_t position = 1000 + i * (last - 1000) / steps;
    MemorySample sample;
    sample.tokens = 2 * position;
    sample.at_rest = sample.measured = true;
    sample.arena = 2 * shape.BytesAt(position);
    sample.anonymous = 50'000'000 + std::llround(leak * static_cast<double>(sample.tokens));
    // Weights that are mapped leave the page cache meanwhile.
    sample.resident = sample.anonymous + 80'000'000 - i * 1'000'000;
    sample.proportional = sample.resident - 1'000'000;
    figures.samples.push_back(sample);
    figures.accounted.push_back({position, shape.BytesAt(position)});
  }
  return figures;
}

TEST(StateShape, CountsWholeBlocks) {
  EXPECT_EQ(kFixed.BytesAt(0), 1000);
  EXPECT_EQ(kFixed.BytesAt(1'000'000), 1000);
  EXPECT_EQ(kFixed.BytesPerToken(), 0);
  EXPECT_EQ(kPaged.BytesAt(0), 64);
  EXPECT_EQ(kPaged.BytesAt(1), 64 + 4096);
  EXPECT_EQ(kPaged.BytesAt(16), 64 + 4096);
  EXPECT_EQ(kPaged.BytesAt(17), 64 + 2 * 4096);
  EXPECT_EQ(kPaged.BytesPerToken(), 256);
}

TEST(StateShape, TheBreakEvenPositionIsTheFirstWhereThePagedSessionIsNotSmaller) {
  for (const int64_t fixed_bytes : {1, 64, 65, 4095, 4160, 4161, 4224, 40'000, 640'512}) {
    const StateShape fixed = {false, fixed_bytes, 0, 0};
    const int64_t position = *BreakEvenPosition(fixed, kPaged);
    EXPECT_GE(kPaged.BytesAt(position), fixed_bytes);
    if (position > 0) EXPECT_LT(kPaged.BytesAt(position - 1), fixed_bytes) << fixed_bytes;
  }
  // 640,512 bytes against 4,096 for 16 tokens: 157 blocks, of which the last begins at token 2,497.
  EXPECT_EQ(BreakEvenPosition({false, 640'512, 0, 0}, {true, 0, 4096, 16}), 156 * 16 + 1);
  EXPECT_EQ(BreakEvenPosition(kFixed, kFixed), std::nullopt);
  EXPECT_EQ(BreakEvenPosition(kPaged, kPaged), std::nullopt);
}

TEST(GrowthVerdict, AFixedStateIsConstantWhereNothingMoves) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant) << figures.why;
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.session_slope->bytes_per_token, 0);
  EXPECT_EQ(figures.session_slope->high, 0);
  EXPECT_EQ(figures.slopes.arena->high, 0);
  EXPECT_EQ(figures.slopes.anonymous->high, 0);
  EXPECT_LT(figures.slopes.resident->high, -90) << "page cache that is given back";
  EXPECT_EQ(figures.slopes.device, std::nullopt);
  EXPECT_EQ(figures.process_witness, "anonymous");
  EXPECT_THAT(figures.why, HasSubstr("0.000 bytes per token and session"));
  EXPECT_THAT(figures.why, HasSubstr("200,000 tokens in 41 samples"));
}

// One byte per token of one session, whatever the number of sessions: it is the sum of the positions that
// counts.
TEST(GrowthVerdict, TheProcessIsHeldToOneByte) {
  for (const double leak : {1.0, 4.0, 100.0}) {
    GrowthFigures figures = FiguresOf(kFixed, leak);
    JudgeGrowth(&figures);
    EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows) << leak;
    EXPECT_NEAR(figures.slopes.anonymous->bytes_per_token, leak, 0.001);
    EXPECT_EQ(figures.failure, figures.why);
  }
  GrowthFigures figures = FiguresOf(kFixed, 0.9);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant);
}

TEST(GrowthVerdict, WhatIsMissingIsSaidInOptions) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (size_t i = 20; i < figures.samples.size(); ++i) figures.samples[i].anonymous += 1 << 20;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_EQ(figures.outcome, GrowthOutcome::kUndecided);
  EXPECT_THAT(figures.why, HasSubstr("41 samples; for a verdict use --positions 1000,101000,"));
  EXPECT_THAT(figures.why, HasSubstr(" or --sessions "));
  EXPECT_EQ(figures.failure, figures.why);
  // Too short a way shows nothing, however quiet it is: a leak first fills the pages that are there.
  figures = FiguresOf(kFixed, 0, 40, 26'000);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why, EndsWith("for a verdict use --positions 1000,26000,56000 or --sessions 5"));
  // Nor is the heap of a server that has just begun a leak.
  figures = FiguresOf(kFixed, 11, 40, 26'000);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  // Tokens enough, in too few samples: neither clean nor a leak.
  for (const double leak : {0.0, 11.0}) {
    figures = FiguresOf(kFixed, leak, 8);
    JudgeGrowth(&figures);
    EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
    EXPECT_THAT(figures.why, HasSubstr("9 samples give no interval"));
    EXPECT_THAT(figures.why, HasSubstr("--piece "));
  }
  figures = FiguresOf(kFixed, 0, 1);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why,
              HasSubstr("2 samples of the process's memory after the warm-up give no slope; for a "
                        "verdict use --positions 1000,101000,"));
}

TEST(GrowthPlan, AdviceIsEnoughAndNotMuchMore) {
  GrowthWay way;
  way.shape = kFixed;
  way.sessions = 4;
  way.positions = {1000, 5000};
  const auto advised = [&](double wanted) {
    GrowthWay changed = way;
    const std::string text = GrowthRemedy(way, wanted);
    const size_t at = text.find("5000,");
    EXPECT_NE(at, std::string::npos) << text;
    changed.positions.push_back(at == std::string::npos ? 0 : std::stoll(text.substr(at + 5)));
    return static_cast<double>(PlanGrowth(changed).span);
  };
  for (const double wanted : {1e5, 3e5, 1e7, 1e9}) {
    EXPECT_GE(advised(wanted), wanted);
    EXPECT_LE(advised(wanted), 1.2 * wanted);
  }
  EXPECT_THAT(GrowthWarning(way),
              HasSubstr("are too few for a verdict on constant memory, which takes 100,000 in 10 "
                        "at least: use --positions 1000,5000,"));
  EXPECT_THAT(GrowthWarning(way), HasSubstr(" or --sessions 27"));
  way.sessions = 27;
  EXPECT_EQ(GrowthWarning(way), "");
  way.piece = 1000;
  EXPECT_THAT(GrowthWarning(way), HasSubstr("or --piece 125"));
  way.piece = 125;
  EXPECT_EQ(GrowthWarning(way), "");
  way = {};
  way.positions = {1000, 5000};
  way.sessions = 1;
  way.context_limit = 6000;
  EXPECT_THAT(GrowthWarning(way), HasSubstr("least: use --sessions 27"));
  way.shape = kPaged;
  EXPECT_EQ(GrowthWarning(way), "") << "is exact from its first token on";
}

TEST(GrowthVerdict, WhatOthersTakeIsNoGrowthAndNoProof) {
  for (const double leak : {0.0, 11.0}) {
    GrowthFigures figures = FiguresOf(kFixed, leak);
    figures.other_clients = "2 sessions of m more";
    figures.samples.back().arena += 2000;
    JudgeGrowth(&figures);
    EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
    EXPECT_EQ(figures.outcome, GrowthOutcome::kUndecided);
    EXPECT_EQ(figures.why,
              "another client worked on the server (2 sessions of m more), and memory does not tell whose it "
              "is: run it "
              "alone");
    EXPECT_EQ(figures.failure, figures.why);
    figures.accounted.back().bytes -= 1;
    JudgeGrowth(&figures);
    EXPECT_EQ(figures.outcome, GrowthOutcome::kFailed) << "the accounting of a session is nobody else's";
    EXPECT_THAT(figures.failure, HasSubstr("accounts 999 bytes"));
  }
  // What others held before, and did not touch, is no part of the model's growth.
  GrowthFigures paged = FiguresOf(kPaged, 300);
  for (MemorySample& sample : paged.samples) sample.arena += 10 * 4096;
  JudgeGrowth(&paged);
  EXPECT_EQ(paged.verdict, GrowthVerdict::kGrows);
  paged.others_arena = 10 * 4096;
  JudgeGrowth(&paged);
  EXPECT_EQ(paged.verdict, GrowthVerdict::kAsExpected) << paged.why;
}

// Three readings on a line are no interval of no width; three that are equal are, where they are counted.
TEST(GrowthReport, AnIntervalOfTooFewReadingsIsNotShown) {
  GrowthFigures figures = FiguresOf(kPaged, 300, 2);
  JudgeGrowth(&figures);
  nlohmann::json slope = GrowthJson(figures)["slope"];
  EXPECT_NEAR(slope["session"]["bytes_per_token"].get<double>(), 256, 0.1);
  EXPECT_EQ(slope["session"]["samples"], 3);
  EXPECT_EQ(slope["session"]["low"], nullptr);
  EXPECT_EQ(slope["session"]["high"], nullptr);
  EXPECT_EQ(slope["session"]["exact"], false);
  EXPECT_THAT(GrowthText("m", figures),
              ContainsRegex("accounting, one session +25[0-9.]+ +too few +too few +3\n"));
  figures = FiguresOf(kFixed, 0, 2);
  JudgeGrowth(&figures);
  slope = GrowthJson(figures)["slope"];
  EXPECT_EQ(slope["session"]["high"], 0);
  EXPECT_EQ(slope["session"]["exact"], true);
  EXPECT_EQ(slope["anonymous"]["high"], nullptr);
  EXPECT_THAT(GrowthText("m", figures), ContainsRegex("accounting, one session +0.000 +exact +exact +3\n"));
  EXPECT_THAT(GrowthText("m", figures), ContainsRegex("process, anonymous +0.000 +too few +too few +3\n"));
  figures = FiguresOf(kFixed, 0);
  JudgeGrowth(&figures);
  EXPECT_THAT(GrowthText("m", figures), ContainsRegex("process, anonymous +0.000 +0.000 +0.000 +41\n"));
}

TEST(GrowthReport, EachVerdictHasALookOfItsOwn) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  JudgeGrowth(&figures);
  EXPECT_THAT(GrowthText("m", figures), HasSubstr("\n  [ok] verdict: constant: "));
  EXPECT_EQ(GrowthJson(figures)["outcome"], "passed");
  figures = FiguresOf(kFixed, 4);
  JudgeGrowth(&figures);
  EXPECT_THAT(GrowthText("m", figures), HasSubstr("\n  [!!] verdict: grows: "));
  EXPECT_EQ(GrowthJson(figures)["outcome"], "failed");
  figures = FiguresOf(kFixed, 0, 40, 26'000);
  JudgeGrowth(&figures);
  EXPECT_THAT(GrowthText("m", figures), HasSubstr("\n  [??] verdict: undecided: "));
  EXPECT_EQ(GrowthJson(figures)["outcome"], "undecided");
}

// Fails the run as well, and does not say that it failed.
TEST(GrowthReport, ARunOnWhichNothingWasDecidedSaysSo) {
  Report report;
  report.models.resize(2);
  report.models[0].growth = FiguresOf(kFixed, 0, 40, 26'000);
  JudgeGrowth(&*report.models[0].growth);
  report.failures = {"m: growth: " + report.models[0].growth->failure};
  absl::Status verdict = VerdictOf(report);
  EXPECT_EQ(GetErrorDetails(verdict).reason, "LOADTEST_UNDECIDED");
  EXPECT_THAT(std::string(verdict.message()), StartsWith("the load test is undecided: m: growth: "));
  report.failures.push_back("n: no request of 6 was completed");
  verdict = VerdictOf(report);
  EXPECT_EQ(GetErrorDetails(verdict).reason, "LOADTEST_FAILED");
  EXPECT_THAT(std::string(verdict.message()), StartsWith("the load test did not pass: "));
}

TEST(GrowthVerdict, OneByteInTheAccountingOrTheArenaIsGrowth) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  figures.accounted.back().bytes += 1;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_THAT(figures.why,
              HasSubstr("accounts 1,001 bytes to a session at position 101,000, the shapes say 1,000"));
  figures = FiguresOf(kFixed, 0);
  figures.samples.back().arena += 1;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_THAT(figures.why, HasSubstr("from 2,000 to 2,001 bytes"));
  // What is not measured does not count: the sessions were being made.
  figures.samples.back().measured = false;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant);
}

TEST(GrowthVerdict, AServerThatDoesNotTellAnonymousMemoryIsJudgedByItsResidentSet) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (MemorySample& sample : figures.samples) {
    sample.resident = 90'000'000 + 4 * sample.tokens;
    sample.anonymous = sample.proportional = 0;
  }
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.process_witness, "resident");
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_EQ(figures.slopes.proportional, std::nullopt);
}

TEST(GrowthVerdict, TheDeviceIsAWitnessWhereThereIsOne) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (MemorySample& sample : figures.samples) sample.device = 5'000'000'000 + 4 * sample.tokens;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_NEAR(figures.slopes.device->bytes_per_token, 4, 1e-6);
  EXPECT_THAT(figures.why, HasSubstr("device"));
}

TEST(GrowthVerdict, PagedStateIsHeldToItsShapes) {
  GrowthFigures figures = FiguresOf(kPaged, 300);
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kAsExpected) << figures.why;
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.expected_bytes_per_token, 256);
  EXPECT_NEAR(figures.slopes.arena->bytes_per_token, 256, 0.1);
  EXPECT_NEAR(figures.session_slope->bytes_per_token, 256, 0.1);
  EXPECT_THAT(figures.why, HasSubstr("the shapes say 256.0"));
  figures.samples.back().arena += 2 * 4096;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  figures = FiguresOf(kPaged, 300);
  figures.samples.back().arena -= 2 * 4096;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  figures = FiguresOf(kPaged, 300);
  figures.accounted.back().bytes += 2 * 4096;
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
}

TEST(GrowthVerdict, ARefusalIsTheEndOfPagedStateAndAFailureOfFixedState) {
  GrowthFigures figures = FiguresOf(kPaged, 300);
  figures.stopped = GrowthStop{5000, "KV_CAPACITY_EXHAUSTED", "no blocks", true};
  JudgeGrowth(&figures);
  EXPECT_EQ(figures.failure, "");
  figures.stopped->refusal = false;
  JudgeGrowth(&figures);
  EXPECT_THAT(figures.failure, HasSubstr("ended at position 5,000 of 101,000: no blocks"));
  figures = FiguresOf(kFixed, 0);
  figures.stopped = GrowthStop{0, "SESSION_CAPACITY_EXHAUSTED", "no slot", true};
  JudgeGrowth(&figures);
  EXPECT_NE(figures.failure, "");
}

}  // namespace
}  // namespace weir
