#include "runtime/ops/embedding/embedding.h"

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

TEST(GatherRows, CopiesTheNamedRowsInBothDTypes) {
  const auto device = CreateTestDevice(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int width : {1, 17, 576, 1100}) {
      for (const int tokens : {1, 3, 130}) {
        constexpr int kRows = 23;
        // Rows that start at any value, and rows that can be read 16 bytes at a time.
        const bool aligned = width % 4 == 0 && tokens != 3;
        Random random(static_cast<uint64_t>(width + tokens));
        Guarded table(dtype, {kRows, width}, aligned ? 4 : 7);
        Guarded index(DType::kI32, {tokens});
        Guarded y(DType::kF32, {tokens, width}, aligned ? 4 : 2);
        random.FillNormal(table);
        for (int t = 0; t < tokens; ++t) index.view().data<int32_t>()[t] = random.Int(0, kRows - 1);
        index.view().data<int32_t>()[0] = kRows - 1;
        std::vector<double> expected(static_cast<size_t>(tokens * width));
        GatherRowsReference({table, index, y}, expected.data());
        RunKernel(kGatherRows, {table, index, y}, *device);
        EXPECT_EQ(y.ToDoubles(), expected);
        EXPECT_TRUE(y.RedZonesIntact());
      }
    }
  }
}

TEST(GatherRowsDeathTest, RefusesAnIdOutsideTheTable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = CreateCpuDevice(1);
  Guarded table(DType::kF32, {4, 2});
  Guarded index(DType::kI32, {1});
  Guarded y(DType::kF32, {1, 2});
  table.Fill(0.0);
  index.Assign({4.0});
  EXPECT_DEATH(GatherRowsCpu({table, index, y}, device->stream()), "check failed");
}

}  // namespace
}  // namespace weir
