// Log-probabilities of given ids, as Score reports them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/engine/sampler.h"

namespace weir {
namespace {

TEST(LogprobOf, EqualsDoublePrecisionOverTheTokenizersIds) {
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
      EXPECT_NEAR(sampler.LogprobOf(logits, id), logits[id] - std::log(sum), 2e-5) << size << " " << id;
    EXPECT_EQ(logits, before);
  }
}

TEST(LogprobOf, IsNaNWhereTheRowIsNotFinite) {
  Sampler sampler(100, 100);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(100, 1.0f);
    logits[70] = bad;
    EXPECT_TRUE(std::isnan(sampler.LogprobOf(logits, 3)));
  }
  EXPECT_TRUE(
      std::isnan(sampler.LogprobOf(std::vector<float>(100, -std::numeric_limits<float>::infinity()), 3)));
}

}  // namespace
}  // namespace weir
