// The functions that activations are made of, for every instruction set of this machine, against double
// precision.
#define HWY_DISABLE_PCLMUL_AES  // as the kernels have it
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/runtime/ops/simd_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

void Exp2NonPositiveArray(const float* x, float* y, size_t count) {
  Map1(x, y, count, [](V v) HWY_ATTR { return Exp2NonPositive(F32(), v); });
}
void ExpNonPositiveArray(const float* x, float* y, size_t count) {
  Map1(x, y, count, [](V v) HWY_ATTR { return ExpNonPositive(v); });
}
void SoftplusArray(const float* x, float* y, size_t count) {
  Map1(x, y, count, [](V v) HWY_ATTR { return Softplus(v); });
}
void SiluArray(const float* x, float* y, size_t count) {
  Map1(x, y, count, [](V v) HWY_ATTR { return Silu(v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"

namespace weir {
namespace {

HWY_EXPORT(Exp2NonPositiveArray);
HWY_EXPORT(ExpNonPositiveArray);
HWY_EXPORT(SoftplusArray);
HWY_EXPORT(SiluArray);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SimdMath : public testing::TestWithParam<int64_t> {
 protected:
  using Function = void (*)(const float*, float*, size_t);

  void SetUp() override {
    if ((hwy::SupportedTargets() & GetParam()) == 0)
      GTEST_SKIP() << "this machine has no " << hwy::TargetName(GetParam());
    hwy::GetChosenTarget().Update(GetParam());
  }
  void TearDown() override { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }

  static float At(Function function, float x) {
    float y = 0;
    function(&x, &y, 1);
    return y;
  }

  // Largest relative error over `count` points of [low, high] and their float neighbours.
  static double LargestError(Function function, double (*exact)(double), double low, double high) {
    constexpr int kPoints = 300000;
    std::vector<float> x, y;
    for (int i = 0; i < kPoints; ++i) x.push_back(static_cast<float>(low + (high - low) * i / (kPoints - 1)));
    y.resize(x.size());
    function(x.data(), y.data(), x.size());
    double largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = exact(x[i]);
      const double error = std::abs(y[i] - want) / std::max(std::abs(want), 1.2e-38);
      if (!(error <= largest)) largest = error;
    }
    return largest;
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, SimdMath, testing::Values(HWY_SSE4, HWY_AVX2, HWY_AVX3),
                         [](const auto& param) { return hwy::TargetName(param.param); });

TEST_P(SimdMath, Exp2NonPositive) {
  const auto exp2 = HWY_DYNAMIC_DISPATCH(Exp2NonPositiveArray);
  EXPECT_LT(LargestError(exp2, std::exp2, -126, 0), 2.5e-7);
  EXPECT_LT(LargestError(exp2, std::exp2, -1, 0), 2.5e-7);
  EXPECT_LT(LargestError(exp2, std::exp2, -1e-3, 0), 2.5e-7);
  EXPECT_EQ(At(exp2, 0.0f), 1.0f) << "a state that does not decay keeps every bit";
  EXPECT_EQ(At(exp2, -0.0f), 1.0f);
  EXPECT_EQ(At(exp2, -126.0f), std::ldexp(1.0f, -126));
  for (const float x : {-151.0f, -1e4f, -1e30f, -kInfinity}) EXPECT_EQ(At(exp2, x), 0.0f) << x;
  for (const float x : {-127.0f, -130.5f, -149.9f}) EXPECT_LE(At(exp2, x), std::ldexp(1.0f, -126)) << x;
  EXPECT_TRUE(std::isnan(At(exp2, kNan)));
  EXPECT_TRUE(std::isnan(At(exp2, std::bit_cast<float>(0xffffffffu)))) << "whatever the bits of a NaN are";
}

TEST_P(SimdMath, ExpNonPositive) {
  const auto exp = HWY_DYNAMIC_DISPATCH(ExpNonPositiveArray);
  EXPECT_LT(LargestError(exp, std::exp, -87.3, 0), 2.5e-7);
  EXPECT_LT(LargestError(exp, std::exp, -1, 0), 2.5e-7);
  EXPECT_EQ(At(exp, 0.0f), 1.0f);
  for (const float x : {-105.0f, -1e4f, -1e30f, -kInfinity}) EXPECT_EQ(At(exp, x), 0.0f) << x;
  EXPECT_TRUE(std::isnan(At(exp, kNan)));
}

double ExactSoftplus(double x) { return std::log1p(std::exp(x)); }
double ExactSilu(double x) { return x / (1 + std::exp(-x)); }

TEST_P(SimdMath, Softplus) {
  const auto softplus = HWY_DYNAMIC_DISPATCH(SoftplusArray);
  EXPECT_LT(LargestError(softplus, ExactSoftplus, -87, 0), 6e-7);
  EXPECT_LT(LargestError(softplus, ExactSoftplus, -2, 40), 6e-7);
  EXPECT_EQ(At(softplus, 1e30f), 1e30f);
  EXPECT_EQ(At(softplus, kInfinity), kInfinity);
  EXPECT_EQ(At(softplus, -kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(At(softplus, kNan)));
}

TEST_P(SimdMath, Silu) {
  const auto silu = HWY_DYNAMIC_DISPATCH(SiluArray);
  EXPECT_LT(LargestError(silu, ExactSilu, -80, -1e-3), 6e-7);
  EXPECT_LT(LargestError(silu, ExactSilu, 1e-3, 100), 6e-7);
  EXPECT_EQ(At(silu, 0.0f), 0.0f);
  EXPECT_EQ(At(silu, 1e30f), 1e30f);
  EXPECT_TRUE(std::isnan(At(silu, kNan)));
}

}  // namespace
}  // namespace weir
#endif  // HWY_ONCE
