#include "runtime/ops/swiglu/swiglu.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

TEST(SwiGlu, EqualsReferenceAtOddSizesAndInPlace) {
  const auto device = CreateTestDevice(2);
  for (const int d_ff : {1, 7, 16, 65, 1536}) {
    for (const int tokens : {1, 3, 66}) {
      Random random(static_cast<uint64_t>(d_ff + tokens));
      // Gate and up as the two halves of one fused projection.
      Guarded fused(DType::kF32, {tokens, 2 * d_ff});
      Guarded y(DType::kF32, {tokens, d_ff}, 2);
      random.FillNormal(fused, 5.0);
      SwiGluArgs args{fused.view().Columns(0, d_ff), fused.view().Columns(d_ff, d_ff), y};
      std::vector<double> expected(static_cast<size_t>(tokens * d_ff));
      SwiGluReference(args, expected.data());
      RunKernel(kSwiGlu, args, *device);
      EXPECT_LT(Nmse(y, expected), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact());
      args.y = args.gate;
      RunKernel(kSwiGlu, args, *device);
      EXPECT_LT(Nmse(args.gate, expected), kNmseF32);
      EXPECT_TRUE(fused.RedZonesIntact());
    }
  }
}

TEST(SwiGlu, LargeGatesNeitherOverflowNorLoseNaN) {
  const auto device = CreateTestDevice(1);
  Guarded gate(DType::kF32, {1, 5});
  Guarded up(DType::kF32, {1, 5});
  Guarded y(DType::kF32, {1, 5});
  gate.Assign({1e30, -1e30, 100.0, -100.0, std::numeric_limits<double>::quiet_NaN()});
  up.Fill(1.0);
  RunKernel(kSwiGlu, {gate, up, y}, *device);
  EXPECT_FLOAT_EQ(y.row<float>(0)[0], 1e30f);
  EXPECT_EQ(y.row<float>(0)[1], 0.0f);
  EXPECT_FLOAT_EQ(y.row<float>(0)[2], 100.0f);
  EXPECT_NEAR(y.row<float>(0)[3], 0.0, 1e-30);
  EXPECT_TRUE(std::isnan(y.row<float>(0)[4]));
}

TEST(SwiGlu, RowsKeepTheirBitsInAnyBatchAndThreadCount) {
  const int num_tokens = SlowKernels() ? 20 : 150;
  constexpr int kWidth = 301;
  Random random(11);
  Guarded gate(DType::kF32, {num_tokens, kWidth});
  Guarded up(DType::kF32, {num_tokens, kWidth});
  Guarded one(DType::kF32, {num_tokens, kWidth});
  Guarded many(DType::kF32, {num_tokens, kWidth});
  random.FillNormal(gate);
  random.FillNormal(up);
  const auto alone = CreateTestDevice(1);
  const auto crowd = CreateTestDevice(3);
  for (int t = 0; t < num_tokens; ++t)
    RunKernel(kSwiGlu, {gate.view().Rows(t, 1), up.view().Rows(t, 1), one.view().Rows(t, 1)}, *alone);
  RunKernel(kSwiGlu, {gate, up, many}, *crowd);
  EXPECT_EQ(one.Bytes(), many.Bytes());
}

TEST(SwiGlu, AlignmentChangesNoBit) {
  const auto device = CreateTestDevice(2);
  std::vector<std::vector<std::byte>> results;
  for (const int padding : {0, 1, 4}) {
    Guarded gate(DType::kF32, {7, 68}, padding), up(DType::kF32, {7, 68}, padding),
        y(DType::kF32, {7, 68}, padding);
    Random random(12);
    random.FillNormal(gate, 4.0);
    random.FillNormal(up);
    RunKernel(kSwiGlu, {gate, up, y}, *device);
    EXPECT_TRUE(y.RedZonesIntact());
    results.push_back(y.Bytes());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace weir
