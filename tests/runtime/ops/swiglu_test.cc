#include "runtime/ops/swiglu/swiglu.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"

namespace weir {
namespace {

TEST(SwiGlu, EqualsReferenceAtOddSizesAndInPlace) {
  const auto device = CreateCpuDevice(2);
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
      SwiGluCpu(args, device->stream());
      EXPECT_LT(Nmse(y, expected), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact());
      args.y = args.gate;
      SwiGluCpu(args, device->stream());
      EXPECT_LT(Nmse(args.gate, expected), kNmseF32);
      EXPECT_TRUE(fused.RedZonesIntact());
    }
  }
}

TEST(SwiGlu, LargeGatesNeitherOverflowNorLoseNaN) {
  const auto device = CreateCpuDevice(1);
  Guarded gate(DType::kF32, {1, 5});
  Guarded up(DType::kF32, {1, 5});
  Guarded y(DType::kF32, {1, 5});
  gate.Assign({1e30, -1e30, 100.0, -100.0, std::numeric_limits<double>::quiet_NaN()});
  up.Fill(1.0);
  SwiGluCpu({gate, up, y}, device->stream());
  EXPECT_FLOAT_EQ(y.row<float>(0)[0], 1e30f);
  EXPECT_EQ(y.row<float>(0)[1], 0.0f);
  EXPECT_FLOAT_EQ(y.row<float>(0)[2], 100.0f);
  EXPECT_NEAR(y.row<float>(0)[3], 0.0, 1e-30);
  EXPECT_TRUE(std::isnan(y.row<float>(0)[4]));
}

TEST(SwiGlu, RowsKeepTheirBitsInAnyBatchAndThreadCount) {
  constexpr int kTokens = 150;
  constexpr int kWidth = 301;
  Random random(11);
  Guarded gate(DType::kF32, {kTokens, kWidth});
  Guarded up(DType::kF32, {kTokens, kWidth});
  Guarded one(DType::kF32, {kTokens, kWidth});
  Guarded many(DType::kF32, {kTokens, kWidth});
  random.FillNormal(gate);
  random.FillNormal(up);
  const auto alone = CreateCpuDevice(1);
  const auto crowd = CreateCpuDevice(3);
  for (int t = 0; t < kTokens; ++t)
    SwiGluCpu({gate.view().Rows(t, 1), up.view().Rows(t, 1), one.view().Rows(t, 1)}, alone->stream());
  SwiGluCpu({gate, up, many}, crowd->stream());
  EXPECT_EQ(one.Bytes(), many.Bytes());
}

}  // namespace
}  // namespace weir
