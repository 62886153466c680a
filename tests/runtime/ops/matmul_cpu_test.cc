// What is the CPU's own in matmul: its instruction sets, threads, scratch memory and denormals.
#include <malloc.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/ops/matmul/isa.h"
#include "runtime/ops/matmul/matmul.h"
#include "tests/runtime/ops/matmul_case.h"

namespace weir {
namespace {

class MatmulCpuTest : public testing::TestWithParam<std::tuple<MatmulIsa, DType>> {
 protected:
  void SetUp() override {
    const MatmulIsa isa = std::get<0>(GetParam());
    if (!MatmulIsaSupported(isa)) GTEST_SKIP() << "this CPU has no " << MatmulIsaName(isa);
    SetMatmulIsaForTest(isa);
  }
  void TearDown() override { SetMatmulIsaForTest(std::nullopt); }
  static DType dtype() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, MatmulCpuTest,
                         testing::Combine(testing::ValuesIn(kAllMatmulIsas),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kI8)),
                         [](const auto& param) {
                           return fmt::format("{}_{}", MatmulIsaName(std::get<0>(param.param)),
                                              DTypeName(std::get<1>(param.param)));
                         });

TEST_P(MatmulCpuTest, RowsAreBitEqualAcrossSeveralPasses) {
  constexpr int64_t kRows = 1031, kK = 515, kN = 65;
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), y(kRows, kN), alone(kRows, kN);
  const TestWeight weight(dtype(), kN, kK, 2);
  const PackedMatrix packed = weight.Pack(*device);
  MatmulArgs args{.x = x.View(), .weight = &packed, .y = y.View(), .bias = {}};
  Launch(kMatmul, args, device->stream());
  for (int64_t r = 0; r < kRows; ++r) {
    args.x = x.View(r, 1);
    args.y = alone.View(r, 1);
    Launch(kMatmul, args, device->stream());
    ASSERT_EQ(std::memcmp(y.row(r), alone.row(r), kN * sizeof(float)), 0) << r;
  }
  EXPECT_TRUE(y.RedZonesIntact());
}

// Workers flush denormals and a test's thread does not: without care the bits would tell who did the work.
TEST_P(MatmulCpuTest, DenormalsCountAsZeroOnEveryThread) {
  constexpr int64_t kRows = 64, kK = 64, kN = 256;
  Matrix x(kRows, kK), y(kRows, kN);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kK; ++c) x.at(r, c) = 1e-25f;
  TestWeight tiny(dtype(), kN, kK, 2);
  for (int64_t r = 0; r < kN; ++r)
    for (int64_t c = 0; c < kK; ++c) tiny.values.at(r, c) = 1e-15f;
  for (BF16& value : tiny.rounded) value = BF16::FromFloat(1e-15f);
  std::fill(tiny.scales.begin(), tiny.scales.end(), 1e-18f);  // the sums are normal numbers
  for (int threads : {1, 2}) {
    const std::unique_ptr<Device> device = CreateCpuDevice(threads);
    const PackedMatrix packed = tiny.Pack(*device);
    // A single row is too little to share: it stays on the caller.
    for (const int64_t rows : {kRows, int64_t{1}}) {
      const TensorView y_rows = y.View().Rows(0, rows);
      Launch(kMatmul, {.x = x.View().Rows(0, rows), .weight = &packed, .y = y_rows, .bias = {}},
             device->stream());
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < kN; ++c) ASSERT_EQ(y.at(r, c), 0.0f) << r << " " << c;
    }
  }
  volatile float still = std::numeric_limits<float>::min();
  EXPECT_GT(still * 0.5f, 0.0f) << "the caller's own denormal mode must be left as it was";
}

TEST_P(MatmulCpuTest, TheLogNamesTheInstructionSet) {
  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  EXPECT_EQ(DescribeProducts(*device), fmt::format("products of weights on cpu: instruction set {}",
                                                   MatmulIsaName(std::get<0>(GetParam()))));
}

TEST_P(MatmulCpuTest, NoMemoryAfterTheLargestBatch) {
  constexpr int64_t kRows = 600, kK = 300, kN = 40;
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), y(kRows, kN);
  const TestWeight weight(dtype(), kN, kK, 2);
  const PackedMatrix packed = weight.Pack(*device);
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  if (in_use() == 0) GTEST_SKIP() << "a sanitizer replaces the allocator";
  Launch(kMatmul, {.x = x.View(), .weight = &packed, .y = y.View(), .bias = {}}, device->stream());
  const size_t before = in_use();
  for (int64_t m : {1, 7, 64, 512, 513, 600}) {
    Launch(kMatmul, {.x = x.View(0, m), .weight = &packed, .y = y.View(0, m), .bias = {}}, device->stream());
    EXPECT_EQ(in_use(), before) << m;
  }
}

TEST(PackedMatrixCpuTest, MemoryIsWhatItSaysAndComesBack) {
  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  {
    const TestWeight weight(DType::kBF16, 33, 7, 2);
    const PackedMatrix packed = weight.Pack(*device);
    EXPECT_EQ(packed.bytes(), 64 * 8 * 2);
    EXPECT_EQ(device->allocated_bytes(), packed.bytes());
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

}  // namespace
}  // namespace weir
