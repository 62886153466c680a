// Least squares, its interval, and Student's t: against tables, closed forms and noise of known kinds.
#include "client/loadtest/slope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace weir {
namespace {

TEST(StudentQuantile, IsTheTables) {
  struct Entry {
    double p, degrees, t;
  };
  // A&S table 26.10, and its normal limit.
  const Entry entries[] = {
      {0.75, 1, 1.0},      {0.9, 1, 3.078},     {0.975, 1, 12.7062},  {0.995, 1, 63.6567},
      {0.975, 2, 4.3027},  {0.95, 3, 2.3534},   {0.975, 4, 2.7764},   {0.975, 5, 2.5706},
      {0.995, 5, 4.0321},  {0.975, 10, 2.2281}, {0.995, 10, 3.1693},  {0.95, 20, 1.7247},
      {0.975, 30, 2.0423}, {0.975, 60, 2.0003}, {0.975, 120, 1.9799}, {0.975, 1e7, 1.95996}};
  for (const Entry& entry : entries) {
    const double tolerance = entry.t == 3.078 ? 5e-4 : 1e-4;
    EXPECT_NEAR(StudentQuantile(entry.p, entry.degrees), entry.t, tolerance)
        << entry.p << " " << entry.degrees;
    EXPECT_NEAR(StudentQuantile(1 - entry.p, entry.degrees), -entry.t, tolerance);
  }
  EXPECT_NEAR(StudentQuantile(0.5, 7), 0, 1e-9);
  // Closed forms of one and two degrees, far out; and what lies between two whole degrees.
  EXPECT_NEAR(StudentQuantile(0.9999, 1), std::tan(M_PI * 0.4999), 1e-4);
  EXPECT_NEAR(StudentQuantile(0.9999, 2), 0.9998 / std::sqrt(2 * 0.9999 * 0.0001), 1e-4);
  EXPECT_LT(StudentQuantile(0.975, 2.5), StudentQuantile(0.975, 2.4));
  EXPECT_GT(StudentQuantile(0.975, 2.5), StudentQuantile(0.975, 2.6));
}

// Residuals 1, -1, -1, 1 about y = 2 + 3 x: sum of squares 4, over x 5, two degrees of freedom.
TEST(FitSlope, IsLeastSquares) {
  const std::vector<SlopePoint> points = {{0, 3}, {1, 4}, {2, 7}, {3, 12}};
  const absl::StatusOr<Slope> slope = FitSlope(points);
  ASSERT_TRUE(slope.ok()) << slope.status();
  EXPECT_DOUBLE_EQ(slope->bytes_per_token, 3);
  EXPECT_DOUBLE_EQ(slope->intercept, 2);
  EXPECT_DOUBLE_EQ(slope->span, 3);
  EXPECT_EQ(slope->count, 4);
  EXPECT_DOUBLE_EQ(slope->effective_count, 4);
  EXPECT_NEAR(slope->standard_error, std::sqrt(4.0 / 2 / 5), 1e-12);
  EXPECT_NEAR(slope->high, 3 + 4.302653 * std::sqrt(0.4), 1e-5);
  EXPECT_NEAR(slope->low, 3 - 4.302653 * std::sqrt(0.4), 1e-5);
}

TEST(FitSlope, RefusesWhatHasNone) {
  EXPECT_FALSE(FitSlope({}).ok());
  EXPECT_FALSE(FitSlope(std::vector<SlopePoint>{{0, 0}, {1, 1}}).ok());
  EXPECT_FALSE(FitSlope(std::vector<SlopePoint>{{5, 0}, {5, 1}, {5, 2}, {5, 3}}).ok());
}

TEST(FitSlope, EqualValuesHaveAnIntervalOfNoWidthHoweverLargeTheyAre) {
  std::vector<SlopePoint> points;
  for (int i = 0; i < 50; ++i) points.push_back({9e15 + i * 1e9, 123456789012345.0});
  const Slope slope = *FitSlope(points);
  EXPECT_EQ(slope.bytes_per_token, 0);
  EXPECT_EQ(slope.low, 0);
  EXPECT_EQ(slope.high, 0);
  EXPECT_EQ(JudgeSlope(slope, 1), SlopeVerdict::kBelow);
  EXPECT_EQ(MissingTokens(slope, 1), 0);
}

TEST(FitSlope, IsExactFarFromZero) {
  std::vector<SlopePoint> points;
  for (int i = 0; i < 50; ++i) points.push_back({1e12 + i * 4096.0, 8e12 + i * 4096.0 * 3.25});
  const Slope slope = *FitSlope(points);
  EXPECT_NEAR(slope.bytes_per_token, 3.25, 1e-9);
  EXPECT_NEAR(slope.high, 3.25, 1e-6);
  EXPECT_EQ(JudgeSlope(slope, 1), SlopeVerdict::kAbove);
}

// A series of `n` points over `span` tokens, of `noise` and so many bytes for each token.
Slope Fit(int n, double span, double leak, const std::function<double(int)>& noise) {
  std::vector<SlopePoint> points;
  for (int i = 0; i < n; ++i) {
    const double x = 1e5 + span * i / (n - 1);
    points.push_back({x, 3e8 + noise(i) + leak * x});
  }
  return *FitSlope(points);
}

struct Tally {
  int below = 0, above = 0, covered = 0;
};

constexpr int kTrials = 400;

// `make` gives the noise of one trial.
Tally Try(int n, double span, double leak, const std::function<std::function<double(int)>()>& make) {
  Tally tally;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Slope slope = Fit(n, span, leak, make());
    const SlopeVerdict verdict = JudgeSlope(slope, 1);
    tally.below += verdict == SlopeVerdict::kBelow;
    tally.above += verdict == SlopeVerdict::kAbove;
    tally.covered += slope.low <= leak && leak <= slope.high;
  }
  return tally;
}

constexpr double kNoise = 256 << 10;  // bytes, to either side

class SlopeOfNoise : public ::testing::Test {
 protected:
  double Uniform() { return std::uniform_real_distribution<>(-kNoise, kNoise)(random_); }
  std::function<double(int)> White() {
    return [this](int) { return Uniform(); };
  }
  // Each value is mostly the one before.
  std::function<double(int)> Sluggish() {
    return [this, value = 0.0](int) mutable { return value = 0.9 * value + 0.43 * Uniform(); };
  }
  // One rise, somewhere, of 256 KiB.
  std::function<double(int)> Step(int n) {
    return [at = std::uniform_int_distribution<>(0, n - 1)(random_)](int i) { return i > at ? kNoise : 0; };
  }

  std::mt19937_64 random_{7};
};

TEST_F(SlopeOfNoise, ALeakOfFourBytesNeverPassesFromAHundredThousandTokensOn) {
  for (const int n : {10, 20, 64, 128})
    for (const double span : {1e5, 3e5, 1e6}) {
      EXPECT_EQ(Try(n, span, 4, [&] { return White(); }).below, 0) << n << " " << span;
      EXPECT_EQ(Try(n, span, 4, [&] { return Step(n); }).below, 0) << n << " " << span;
    }
  EXPECT_EQ(Try(128, 3e5, 4, [&] { return White(); }).above, kTrials);
  EXPECT_EQ(Try(128, 1e6, 4, [&] { return Sluggish(); }).below, 0);
}

TEST_F(SlopeOfNoise, NoiseAloneIsBelowTheLimitAndNeverAboveIt) {
  EXPECT_GE(Try(128, 3e5, 0, [&] { return White(); }).below, kTrials * 99 / 100);
  EXPECT_EQ(Try(64, 1e6, 0, [&] { return White(); }).below, kTrials);
  EXPECT_GE(Try(128, 1e7, 0, [&] { return Sluggish(); }).below, kTrials * 99 / 100);
  EXPECT_GE(Try(128, 1e7, 0, [&] { return Step(128); }).below, kTrials * 99 / 100);
  EXPECT_EQ(Try(128, 1e6, 0, [&] { return Sluggish(); }).above, 0);
  for (const int n : {10, 128}) EXPECT_EQ(Try(n, 3e5, 0, [&] { return Step(n); }).above, 0);
}

// 95 % of the intervals have the true slope in them; where each value hangs on the one before, nearly so.
TEST_F(SlopeOfNoise, TheIntervalCoversTheTruth) {
  const double all = kTrials;
  EXPECT_NEAR(Try(20, 1e6, 2, [&] { return White(); }).covered / all, 0.96, 0.03);
  EXPECT_NEAR(Try(128, 1e6, 2, [&] { return White(); }).covered / all, 0.95, 0.03);
  EXPECT_GE(Try(128, 1e6, 2, [&] { return Sluggish(); }).covered / all, 0.9);
  EXPECT_GE(Try(256, 1e6, 2, [&] { return Sluggish(); }).covered / all, 0.91);
}

// Taken for independent points, the step would be a leak of 1.5 h / span with hardly a doubt.
TEST(FitSlopeOfSteps, OneStepIsNotEvidenceOfALeak) {
  const double height = 1 << 20, span = 1e6;
  const Slope slope = Fit(1000, span, 0, [&](int i) { return i >= 500 ? height : 0; });
  EXPECT_NEAR(slope.bytes_per_token, 1.5 * height / span, 0.01);
  EXPECT_LT(slope.effective_count, 5);
  EXPECT_EQ(JudgeSlope(slope, 1), SlopeVerdict::kUndecided);
  EXPECT_GT(slope.high, 5 * height / span);
  EXPECT_LT(slope.high, 7 * height / span);
  // The same step over as many tokens more as is said does not matter any more.
  const double missing = MissingTokens(slope, 1);
  EXPECT_EQ(JudgeSlope(Fit(1000, span + missing, 0, [&](int i) { return i >= 500 ? height : 0; }), 1),
            SlopeVerdict::kBelow);
  EXPECT_EQ(JudgeSlope(Fit(1000, span + missing / 2, 0, [&](int i) { return i >= 500 ? height : 0; }), 1),
            SlopeVerdict::kUndecided);
}

TEST(MissingTokens, AreRoundedUpToTwoDigits) {
  Slope slope;
  slope.span = 100000;
  slope.high = 1.23456;
  EXPECT_EQ(MissingTokens(slope, 1), 24000);
  EXPECT_EQ(MissingTokens(slope, 2), 0);
  slope.high = 3;
  EXPECT_EQ(MissingTokens(slope, 1), 200000);
  slope.high = 1;
  EXPECT_EQ(MissingTokens(slope, 1), 1);
}

}  // namespace
}  // namespace weir
