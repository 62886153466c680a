// What the growth phase makes of figures that are given to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/loadtest/growth_figures.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr StateShape kFixed = {false, 1000, 0, 0};
constexpr StateShape kPaged = {true, 64, 4096, 16};

// Of two sessions at positions 1,000 to 101,000 in 40 steps, as a server would show whose process takes
// `leak` bytes for each token.
GrowthFigures FiguresOf(const StateShape& shape, double leak, int64_t steps = 40, int64_t last = 101'000) {
  GrowthFigures figures;
  figures.sessions = 2;
  figures.last_position = last;
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
  JudgeGrowth(kFixed, &figures);
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
    JudgeGrowth(kFixed, &figures);
    EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows) << leak;
    EXPECT_NEAR(figures.slopes.anonymous->bytes_per_token, leak, 0.001);
    EXPECT_EQ(figures.failure, figures.why);
  }
  GrowthFigures figures = FiguresOf(kFixed, 0.9);
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant);
}

TEST(GrowthVerdict, SaysHowManyMoreTokensAreNeeded) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (size_t i = 20; i < figures.samples.size(); ++i) figures.samples[i].anonymous += 1 << 20;
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why, HasSubstr("undecided, needs about"));
  EXPECT_NE(figures.failure, "");
  // Too short a way shows nothing, however quiet it is: a leak first fills the pages that are there.
  figures = FiguresOf(kFixed, 0, 40, 26'000);
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why, HasSubstr("needs about 50,000 more tokens, over all sessions"));
  // Nor is the heap of a server that has just begun a leak.
  figures = FiguresOf(kFixed, 11, 40, 26'000);
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  figures = FiguresOf(kFixed, 0, 8);
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why, HasSubstr("needs 10 samples"));
  figures = FiguresOf(kFixed, 0, 1);
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  EXPECT_THAT(figures.why, HasSubstr("2 samples"));
}

TEST(GrowthVerdict, OneByteInTheAccountingOrTheArenaIsGrowth) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  figures.accounted.back().bytes += 1;
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_THAT(figures.why,
              HasSubstr("accounts 1,001 bytes to a session at position 101,000, the shapes say 1,000"));
  figures = FiguresOf(kFixed, 0);
  figures.samples.back().arena += 1;
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_THAT(figures.why, HasSubstr("from 2,000 to 2,001 bytes"));
  // What is not measured does not count: the sessions were being made.
  figures.samples.back().measured = false;
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kConstant);
}

TEST(GrowthVerdict, AServerThatDoesNotTellAnonymousMemoryIsJudgedByItsResidentSet) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (MemorySample& sample : figures.samples) {
    sample.resident = 90'000'000 + 4 * sample.tokens;
    sample.anonymous = sample.proportional = 0;
  }
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.process_witness, "resident");
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_EQ(figures.slopes.proportional, std::nullopt);
}

TEST(GrowthVerdict, TheDeviceIsAWitnessWhereThereIsOne) {
  GrowthFigures figures = FiguresOf(kFixed, 0);
  for (MemorySample& sample : figures.samples) sample.device = 5'000'000'000 + 4 * sample.tokens;
  JudgeGrowth(kFixed, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  EXPECT_NEAR(figures.slopes.device->bytes_per_token, 4, 1e-6);
  EXPECT_THAT(figures.why, HasSubstr("device"));
}

TEST(GrowthVerdict, PagedStateIsHeldToItsShapes) {
  GrowthFigures figures = FiguresOf(kPaged, 300);
  JudgeGrowth(kPaged, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kAsExpected) << figures.why;
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.expected_bytes_per_token, 256);
  EXPECT_NEAR(figures.slopes.arena->bytes_per_token, 256, 0.1);
  EXPECT_NEAR(figures.session_slope->bytes_per_token, 256, 0.1);
  EXPECT_THAT(figures.why, HasSubstr("the shapes say 256.0"));
  figures.samples.back().arena += 2 * 4096;
  JudgeGrowth(kPaged, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
  figures = FiguresOf(kPaged, 300);
  figures.samples.back().arena -= 2 * 4096;
  JudgeGrowth(kPaged, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kUndecided);
  figures = FiguresOf(kPaged, 300);
  figures.accounted.back().bytes += 2 * 4096;
  JudgeGrowth(kPaged, &figures);
  EXPECT_EQ(figures.verdict, GrowthVerdict::kGrows);
}

TEST(GrowthVerdict, ARefusalIsTheEndOfPagedStateAndAFailureOfFixedState) {
  GrowthFigures figures = FiguresOf(kPaged, 300);
  figures.stopped = GrowthStop{5000, "KV_CAPACITY_EXHAUSTED", "no blocks", true};
  JudgeGrowth(kPaged, &figures);
  EXPECT_EQ(figures.failure, "");
  figures.stopped->refusal = false;
  JudgeGrowth(kPaged, &figures);
  EXPECT_THAT(figures.failure, HasSubstr("ended at position 5,000 of 101,000: no blocks"));
  figures = FiguresOf(kFixed, 0);
  figures.stopped = GrowthStop{0, "SESSION_CAPACITY_EXHAUSTED", "no slot", true};
  JudgeGrowth(kFixed, &figures);
  EXPECT_NE(figures.failure, "");
}

}  // namespace
}  // namespace weir
