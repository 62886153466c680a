#include "runtime/ops/rope/rope.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/runtime/ops/many_runs.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

void FillInvFreq(const Guarded& inv_freq, double base) {
  const int64_t half = inv_freq.view().dim(0);
  for (int64_t i = 0; i < half; ++i)
    inv_freq.view().data<float>()[i] =
        static_cast<float>(std::pow(base, -static_cast<double>(i) / static_cast<double>(half)));
}

TEST(Rope, EqualsReferenceAtPositionsOfMillions) {
  const auto device = CreateTestDevice(2);
  for (const int half : {1, 3, 16, 32, 65}) {
    for (const int num_heads : {1, 3}) {
      const Ragged ragged({{5, 0}, {1, 1'000'000}, {70, 7'654'321}, {2, 100'000'007}});
      Guarded x(DType::kF32, {ragged.num_tokens(), num_heads * 2 * half}, 3);
      Guarded inv_freq(DType::kF32, {half});
      Random random(static_cast<uint64_t>(half));
      random.FillNormal(x);
      FillInvFreq(inv_freq, 10000.0);
      const RopeArgs args{ragged.batch(), x, inv_freq, num_heads};
      std::vector<double> expected(static_cast<size_t>(x.view().num_elements()));
      RopeReference(args, expected.data());
      RunKernel(kRope, args, *device);
      EXPECT_LT(Nmse(x, expected), kNmseF32) << "half " << half;
      EXPECT_TRUE(x.RedZonesIntact());
    }
  }
}

TEST(Rope, TurnsByHandComputedAngles) {
  const auto device = CreateTestDevice(1);
  const Ragged ragged({{2, 3}});
  Guarded x(DType::kF32, {2, 2});
  Guarded inv_freq(DType::kF32, {1});
  x.Assign({1.0, 0.0, 0.0, 1.0});
  inv_freq.Assign({0.5});
  RunKernel(kRope, {ragged.batch(), x, inv_freq, 1}, *device);
  EXPECT_NEAR(x.row<float>(0)[0], std::cos(1.5), 1e-6);
  EXPECT_NEAR(x.row<float>(0)[1], std::sin(1.5), 1e-6);
  EXPECT_NEAR(x.row<float>(1)[0], -std::sin(2.0), 1e-6);
  EXPECT_NEAR(x.row<float>(1)[1], std::cos(2.0), 1e-6);
}

TEST(Rope, TokensKeepTheirBitsInAnyBatchAndThreadCount) {
  constexpr int kHeads = 3;
  constexpr int kHalf = 20;
  const Ragged together({{40, 1000}, {1, 77}, {90, 0}});
  Guarded packed(DType::kF32, {together.num_tokens(), kHeads * 2 * kHalf});
  Guarded single(DType::kF32, {together.num_tokens(), kHeads * 2 * kHalf});
  Guarded inv_freq(DType::kF32, {kHalf});
  Random(5).FillNormal(packed);
  Random(5).FillNormal(single);
  FillInvFreq(inv_freq, 500000.0);
  const auto crowd = CreateTestDevice(4);
  RunKernel(kRope, {together.batch(), packed, inv_freq, kHeads}, *crowd);
  const auto alone = CreateTestDevice(1);
  for (int t = 0; t < together.num_tokens(); ++t) {
    const int64_t position = t < 40 ? 1000 + t : t == 40 ? 77 : t - 41;
    const Ragged one({{1, position}});
    RunKernel(kRope, {one.batch(), single.view().Rows(t, 1), inv_freq, kHeads}, *alone);
  }
  EXPECT_EQ(packed.Bytes(), single.Bytes());
}

TEST(Rope, ManyRunsSomeWithoutTokensHoweverTheirRowsLie) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged(ManyRuns());
  for (const int half : {5, 8}) {
    std::vector<std::vector<std::byte>> results;
    for (const int padding : {0, 1}) {
      Guarded x(DType::kF32, {ragged.num_tokens(), 2 * 2 * half}, padding);
      Guarded inv_freq(DType::kF32, {half});
      Random(6).FillNormal(x);
      FillInvFreq(inv_freq, 10000.0);
      const RopeArgs args{ragged.batch(), x, inv_freq, 2};
      std::vector<double> expected(static_cast<size_t>(x.view().num_elements()));
      RopeReference(args, expected.data());
      RunKernel(kRope, args, *device);
      EXPECT_LT(Nmse(x, expected), kNmseF32) << "half " << half;
      EXPECT_TRUE(x.RedZonesIntact());
      results.push_back(x.Bytes());
    }
    EXPECT_EQ(results[0], results[1]) << "half " << half;
  }
}

}  // namespace
}  // namespace weir
