#include "runtime/ops/feature_map/feature_map.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"

namespace weir {
namespace {

TEST(EluPlusOne, EqualsReferenceAtOddSizesAndInPlace) {
  const auto device = CreateCpuDevice(2);
  for (const int channels : {1, 5, 16, 67, 576}) {
    for (const int tokens : {1, 4, 71}) {
      Random random(static_cast<uint64_t>(channels + tokens));
      Guarded x(DType::kF32, {tokens, channels}, 3);
      Guarded y(DType::kF32, {tokens, channels}, 1);
      random.FillNormal(x, 3.0);
      std::vector<double> expected(static_cast<size_t>(tokens * channels));
      EluPlusOneReference({x, y}, expected.data());
      EluPlusOneCpu({x, y}, device->stream());
      EXPECT_LT(Nmse(y, expected), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact());
      EluPlusOneCpu({x, x}, device->stream());
      EXPECT_EQ(x.Bytes(), y.Bytes());
      EXPECT_TRUE(x.RedZonesIntact());
    }
  }
}

TEST(EluPlusOne, IsNeverNegativeAndKeepsNaN) {
  const auto device = CreateCpuDevice(1);
  Guarded x(DType::kF32, {1, 6});
  Guarded y(DType::kF32, {1, 6});
  x.Assign({0.0, -1.0, -1e6, 1e6, -std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN()});
  EluPlusOneCpu({x, y}, device->stream());
  EXPECT_EQ(y.row<float>(0)[0], 1.0f);
  EXPECT_NEAR(y.row<float>(0)[1], std::exp(-1.0), 1e-7);
  EXPECT_EQ(y.row<float>(0)[2], 0.0f);
  EXPECT_EQ(y.row<float>(0)[3], 1000001.0f);
  EXPECT_EQ(y.row<float>(0)[4], 0.0f);
  EXPECT_TRUE(std::isnan(y.row<float>(0)[5]));
}

}  // namespace
}  // namespace weir
