#include "runtime/ops/discretize/discretize.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

struct Case {
  Case(int tokens, int heads, int head_dim)
      : dt(DType::kF32, {tokens, heads}, 2),
        bias(DType::kF32, {heads}),
        a(DType::kF32, {heads}),
        x(DType::kF32, {tokens, heads * head_dim}, 3),
        log_decay(DType::kF32, {tokens, heads}, 1),
        v(DType::kF32, {tokens, heads * head_dim}, 5) {
    Random random(static_cast<uint64_t>(tokens + heads));
    random.FillNormal(dt, 4.0);
    random.FillNormal(bias);
    random.FillUniform(a, -16.0, -0.01);
    random.FillNormal(x);
  }
  DiscretizeArgs Args(float min_dt, float max_dt) const {
    return {dt, bias, a, x, log_decay, v, min_dt, max_dt};
  }
  Guarded dt, bias, a, x, log_decay, v;
};

TEST(Discretize, EqualsReferenceWithAndWithoutLimits) {
  const auto device = CreateTestDevice(2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int heads : {1, 3, 16, 25}) {
    for (const int head_dim : {1, 12, 64}) {
      for (const auto& [low, high] : {std::pair{0.0f, kInfinity}, {0.05f, 0.2f}}) {
        const Case c(33, heads, head_dim);
        const DiscretizeArgs args = c.Args(low, high);
        std::vector<double> log_decay(static_cast<size_t>(33 * heads));
        std::vector<double> v(log_decay.size() * static_cast<size_t>(head_dim));
        DiscretizeReference(args, log_decay.data(), v.data());
        RunKernel(kDiscretize, args, *device);
        EXPECT_LT(Nmse(c.log_decay, log_decay), kNmseF32);
        EXPECT_LT(Nmse(c.v, v), kNmseF32);
        EXPECT_TRUE(c.log_decay.RedZonesIntact() && c.v.RedZonesIntact());
      }
    }
  }
}

TEST(Discretize, SoftplusAtItsEndsAndNaN) {
  const auto device = CreateTestDevice(1);
  Case c(1, 5, 1);
  c.bias.Fill(0.0);
  c.a.Fill(-1.0);
  c.x.Fill(1.0);
  c.dt.Assign({-200.0, -20.0, 0.0, 50.0, std::numeric_limits<double>::quiet_NaN()});
  RunKernel(kDiscretize, c.Args(0.0f, std::numeric_limits<float>::infinity()), *device);
  const float* v = c.v.row<float>(0);
  EXPECT_EQ(v[0], 0.0f);
  EXPECT_NEAR(v[1] / std::exp(-20.0), 1.0, 1e-6);
  EXPECT_NEAR(v[2], std::log(2.0), 1e-7);
  EXPECT_EQ(v[3], 50.0f);
  EXPECT_TRUE(std::isnan(v[4]));
  EXPECT_TRUE(std::isnan(c.log_decay.row<float>(0)[4]));
}

TEST(Discretize, AlignmentBatchAndPlaceChangeNoBit) {
  const auto device = CreateTestDevice(2);
  constexpr int kTokens = 9;
  constexpr int kHeads = 3;
  constexpr int kHeadDim = 12;
  Guarded bias(DType::kF32, {kHeads}), a(DType::kF32, {kHeads});
  Random(1).FillNormal(bias);
  Random(2).FillUniform(a, -16.0, -0.01);
  std::vector<std::vector<std::byte>> results, decays;
  for (const int padding : {0, 1}) {
    Guarded dt(DType::kF32, {kTokens, kHeads}, padding), log_decay(DType::kF32, {kTokens, kHeads}, padding);
    Guarded x(DType::kF32, {kTokens, kHeads * kHeadDim}, padding);
    Guarded v(DType::kF32, {kTokens, kHeads * kHeadDim}, padding);
    Random random(3);
    random.FillNormal(dt, 4.0);
    random.FillNormal(x);
    if (padding == 0) {
      RunKernel(kDiscretize, {dt, bias, a, x, log_decay, v, 0.01f, 2.0f}, *device);
      results.push_back(v.Bytes());
    } else {
      for (int t = 0; t < kTokens; ++t) {
        const TensorView in_place = x.view().Rows(t, 1);
        RunKernel(
            kDiscretize,
            {dt.view().Rows(t, 1), bias, a, in_place, log_decay.view().Rows(t, 1), in_place, 0.01f, 2.0f},
            *device);
      }
      results.push_back(x.Bytes());
      EXPECT_TRUE(x.RedZonesIntact());
    }
    decays.push_back(log_decay.Bytes());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(decays[0], decays[1]);
}

}  // namespace
}  // namespace weir
