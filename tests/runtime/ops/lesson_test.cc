// The worked example and the numbers of the lesson on linear attention (design page, section 5).
#include <cmath>

#include "gtest/gtest.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/cost.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "tests/support/recurrence_case.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr int kN = 3;
constexpr int kD = 2;
constexpr double kQ[kN][kD] = {{0.2, 0.8}, {0.5, 0.3}, {0.9, 0.1}};
constexpr double kK[kN][kD] = {{0.1, 0.7}, {0.6, 0.4}, {0.3, 0.9}};
constexpr double kV[kN][kD] = {{1.0, 0.5}, {0.2, 0.8}, {0.7, 0.3}};

double Phi(double x) { return x > 0 ? x + 1.0 : std::exp(x); }

// Runs the op on the lesson's three tokens, with φ applied or not.
std::vector<double> RunLesson(bool normalised) {
  const auto device = CreateTestDevice(1);
  const auto cpu = CreateCpuDevice(1);
  const RecurrenceShape shape{1, 1, kD, kD, normalised};
  RecurrenceState state(shape, 1);
  RecurrenceTokens tokens(shape, kN, 1);
  tokens.q.Assign({&kQ[0][0], &kQ[0][0] + kN * kD});
  tokens.k.Assign({&kK[0][0], &kK[0][0] + kN * kD});
  tokens.v.Assign({&kV[0][0], &kV[0][0] + kN * kD});
  const Ragged ragged({{kN, 0, 0}});
  LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
  args.scale = 1.0f;
  if (normalised) {
    RunKernel(kEluPlusOne, {args.q, args.q}, *device);
    RunKernel(kEluPlusOne, {args.k, args.k}, *device);
  }
  LinearRecurrenceCpu(args, cpu->stream());
  return tokens.o.ToDoubles();
}

TEST(Lesson, BothOrdersOfTheProductAgree) {
  for (int i = 0; i < kN; ++i) {
    for (int j = 0; j < kD; ++j) {
      double scores_first = 0.0;
      for (int t = 0; t < kN; ++t) scores_first += (kQ[i][0] * kK[t][0] + kQ[i][1] * kK[t][1]) * kV[t][j];
      double summary_first = 0.0;
      for (int a = 0; a < kD; ++a) {
        double summary = 0.0;
        for (int t = 0; t < kN; ++t) summary += kK[t][a] * kV[t][j];
        summary_first += kQ[i][a] * summary;
      }
      EXPECT_NEAR(scores_first, summary_first, 1e-15);
      // The last token sees all three, so there the causal op equals the product without a mask.
      if (i == kN - 1) {
        EXPECT_NEAR(RunLesson(false)[static_cast<size_t>(i * kD + j)], summary_first, 1e-6);
      }
    }
  }
}

TEST(Lesson, CausalSumsOfTheThreeTokens) {
  const std::vector<double> o = RunLesson(false);
  for (int i = 0; i < kN; ++i) {
    for (int j = 0; j < kD; ++j) {
      double expected = 0.0;
      for (int t = 0; t <= i; ++t) expected += (kQ[i][0] * kK[t][0] + kQ[i][1] * kK[t][1]) * kV[t][j];
      EXPECT_NEAR(o[static_cast<size_t>(i * kD + j)], expected, 1e-6);
    }
  }
  // By hand: q₁·k₁ = 0.2·0.1 + 0.8·0.7 = 0.58, times v₁.
  EXPECT_NEAR(o[0], 0.58, 1e-6);
  EXPECT_NEAR(o[1], 0.29, 1e-6);
}

TEST(Lesson, NormalisedOutputWithEluPlusOne) {
  const std::vector<double> o = RunLesson(true);
  for (int i = 0; i < kN; ++i) {
    double norm = 0.0;
    double out[kD] = {};
    for (int t = 0; t <= i; ++t) {
      double weight = 0.0;
      for (int a = 0; a < kD; ++a) weight += Phi(kQ[i][a]) * Phi(kK[t][a]);
      norm += weight;
      for (int j = 0; j < kD; ++j) out[j] += weight * kV[t][j];
    }
    for (int j = 0; j < kD; ++j) EXPECT_NEAR(o[static_cast<size_t>(i * kD + j)], out[j] / norm, 1e-6);
  }
  // The first token can only return its own value.
  EXPECT_NEAR(o[0], 1.0, 1e-6);
  EXPECT_NEAR(o[1], 0.5, 1e-6);
  // By hand: weights of the second token 1.5·1.1+1.3·1.7 = 3.86 and 1.5·1.6+1.3·1.4 = 4.22.
  EXPECT_NEAR(o[2], (3.86 * 1.0 + 4.22 * 0.2) / 8.08, 1e-6);
}

TEST(Lesson, EntriesAtTenThousandTokens) {
  static_assert(ScoreEntries(10'000) == 100'000'000);
  static_assert(SummaryEntries(128, 128) == 16'384);
  EXPECT_NEAR(static_cast<double>(ScoreEntries(10'000)) / static_cast<double>(SummaryEntries(128, 128)),
              6100.0, 10.0);
}

TEST(Lesson, WorkAt1024And16KTokens) {
  static_assert(SoftmaxWork(1024, 128) == 134'217'728);
  static_assert(LinearWork(1024, 128, 128) == 16'777'216);
  EXPECT_EQ(WorkRatio(1024, 128, 128), 8.0);
  EXPECT_EQ(WorkRatio(16 * 1024, 128, 128), 128.0);
}

TEST(Lesson, WorkCrossesWhereLengthEqualsStateDim) {
  for (const int64_t d : {64, 128, 256}) {
    const int64_t n = WorkCrossoverTokens(d);
    EXPECT_EQ(SoftmaxWork(n, d), LinearWork(n, d, d));
    EXPECT_LT(SoftmaxWork(n - 1, d), LinearWork(n - 1, d, d));
    EXPECT_GT(SoftmaxWork(n + 1, d), LinearWork(n + 1, d, d));
  }
  // A larger kernel costs in proportion, O(n d' d): at d' = n there is nothing left to gain.
  EXPECT_EQ(LinearWork(1024, 256, 128), 2 * LinearWork(1024, 128, 128));
  EXPECT_EQ(WorkRatio(1024, 1024, 128), 1.0);
}

TEST(Lesson, BytesBreakEvenIsItsOwnNumber) {
  // Two f32 levels against 16-bit keys and values, as many heads on both sides, d = 64.
  EXPECT_EQ(RecurrenceStateBytes(1, 64, 64), 2 * (64 * 64 + 64) * 4);
  EXPECT_EQ(KvBytesPerToken(1, 64), 2 * 64 * 2);
  EXPECT_EQ(BreakEvenTokens(RecurrenceStateBytes(1, 64, 64), KvBytesPerToken(1, 64)), 130);
  // One level would break even at 65; d = 128 doubles it; four times fewer KV heads quadruple it.
  EXPECT_EQ(BreakEvenTokens(RecurrenceStateBytes(1, 64, 64, true, 1), KvBytesPerToken(1, 64)), 65);
  EXPECT_EQ(BreakEvenTokens(RecurrenceStateBytes(1, 128, 128), KvBytesPerToken(1, 128)), 258);
  EXPECT_EQ(BreakEvenTokens(RecurrenceStateBytes(8, 64, 64), KvBytesPerToken(2, 64)), 520);
  // The number of heads alone changes nothing.
  EXPECT_EQ(BreakEvenTokens(RecurrenceStateBytes(9, 64, 64), KvBytesPerToken(9, 64)), 130);
}

}  // namespace
}  // namespace weir
