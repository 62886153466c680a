#include "runtime/ops/skip/skip.h"

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

TEST(Skip, EqualsReferenceAtOddSizes) {
  const auto device = CreateTestDevice(2);
  for (const int heads : {1, 3, 24}) {
    for (const int head_dim : {1, 12, 65}) {
      Random random(9);
      Guarded x(DType::kF32, {33, heads * head_dim}, 3), y(DType::kF32, {33, heads * head_dim}, 1);
      Guarded d(DType::kF32, {heads});
      random.FillNormal(x);
      random.FillNormal(y);
      random.FillNormal(d);
      std::vector<double> expected = y.ToDoubles();
      SkipReference({x, d, y}, expected.data());
      RunKernel(kSkip, {x, d, y}, *device);
      EXPECT_LT(Nmse(y, expected), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact());
    }
  }
}

TEST(Skip, AlignmentAndBatchChangeNoBit) {
  const auto device = CreateTestDevice(2);
  constexpr int kTokens = 9;
  constexpr int kColumns = 3 * 12;
  Guarded d(DType::kF32, {3});
  Random(1).FillNormal(d);
  std::vector<std::vector<std::byte>> results;
  for (const int padding : {0, 1}) {
    Guarded x(DType::kF32, {kTokens, kColumns}, padding), y(DType::kF32, {kTokens, kColumns}, padding);
    Random random(2);
    random.FillNormal(x);
    random.FillNormal(y);
    if (padding == 0)
      RunKernel(kSkip, {x, d, y}, *device);
    else
      for (int t = 0; t < kTokens; ++t)
        RunKernel(kSkip, {x.view().Rows(t, 1), d, y.view().Rows(t, 1)}, *device);
    results.push_back(y.Bytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace weir
