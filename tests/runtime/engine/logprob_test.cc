// Log-probabilities and ranks of given ids, as Score reports them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/engine/sampler.h"

namespace weir {
namespace {

TEST(ScoreOf, LogprobEqualsDoublePrecisionOverTheTokenizersIds) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 6);
  for (const int32_t size : {1, 63, 64, 65, 1000, 4096}) {
    const int32_t vocab = size + 7;  // padding rows do not count, whatever they hold
    Sampler sampler(vocab, size);
    std::vector<float> logits(vocab, 1e30f);
    for (int32_t i = 0; i < size; ++i) logits[i] = normal(random);
    const std::vector<float> before = logits;
    double sum = 0;
    for (int32_t i = 0; i < size; ++i) sum += std::exp(static_cast<double>(logits[i]));
    for (const int32_t id : {0, size / 2, size - 1})
      EXPECT_NEAR(sampler.ScoreOf(logits, id).logprob, logits[id] - std::log(sum), 2e-5) << size << " " << id;
    EXPECT_EQ(logits, before);
  }
}

TEST(ScoreOf, IsNaNWhereTheRowIsNotFinite) {
  Sampler sampler(100, 100);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(100, 1.0f);
    logits[70] = bad;
    EXPECT_TRUE(std::isnan(sampler.ScoreOf(logits, 3).logprob));
  }
  EXPECT_TRUE(std::isnan(
      sampler.ScoreOf(std::vector<float>(100, -std::numeric_limits<float>::infinity()), 3).logprob));
}

// Rows with many equal logits; a full sort is the truth.
TEST(ScoreOf, RankIsThePlaceInAStableSort) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (const int32_t size : {1, 2, 63, 64, 65, 129, 1000, 4100}) {
    const int32_t vocab = size + 9;  // padding rows do not count, whatever they hold
    Sampler sampler(vocab, size);
    std::vector<float> logits(vocab, 1e30f);
    for (int32_t i = 0; i < size; ++i)
      logits[i] = size % 2 == 0 ? std::round(normal(random)) : normal(random);  // -0 and 0 among them
    if (size > 100) logits[70] = -std::numeric_limits<float>::infinity();
    std::vector<int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (int32_t place = 0; place < size; ++place)
      ASSERT_EQ(sampler.ScoreOf(logits, order[place]).rank, place + 1) << size << " " << order[place];
    SamplingParams greedy;
    greedy.temperature = 0;
    EXPECT_EQ(sampler.Sample(logits, greedy, {}, 0, {}).token, order[0]);
  }
}

}  // namespace
}  // namespace weir
