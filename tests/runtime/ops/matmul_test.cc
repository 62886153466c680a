#include "runtime/ops/matmul/matmul.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/ops/matmul/isa.h"
#include "tests/runtime/ops/matmul_case.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

double Nmse(Matrix& y, int64_t rows, int64_t columns, const std::vector<double>& expected) {
  double error = 0, power = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const double want = expected[static_cast<size_t>(r * columns + c)];
      error += (y.at(r, c) - want) * (y.at(r, c) - want);
      power += want * want;
    }
  }
  return error / power;
}

struct Shape {
  int64_t k, n;
};

struct MatmulVariant {
  std::string name;
  DType dtype;
  std::optional<MatmulIsa> isa;
  int form = 0;
};

// On the CPU each of its instruction sets; of the CUDA column each form of its products.
std::vector<MatmulVariant> Variants() {
  std::vector<MatmulVariant> variants;
  if (CreateTestDevice(1)->backend() != Backend::kCpu) {
    variants.push_back({"cuda_f32", DType::kF32, std::nullopt});
    for (int form = 0; form < NumProductForms(); ++form)
      variants.push_back({form == 0 ? "cuda_bf16" : "cuda_bf16_cublaslt", DType::kBF16, std::nullopt, form});
    variants.push_back({"cuda_int8", DType::kI8, std::nullopt});
    return variants;
  }
  for (const MatmulIsa isa : kAllMatmulIsas)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8})
      variants.push_back({fmt::format("{}_{}", MatmulIsaName(isa), DTypeName(dtype)), dtype, isa});
  return variants;
}

class MatmulTest : public testing::TestWithParam<MatmulVariant> {
 protected:
  void SetUp() override {
    ChooseProductForm(GetParam().form);
    const std::optional<MatmulIsa> isa = GetParam().isa;
    if (!isa.has_value()) return;
    if (!MatmulIsaSupported(*isa)) GTEST_SKIP() << "this CPU has no " << MatmulIsaName(*isa);
    SetMatmulIsaForTest(isa);
  }
  void TearDown() override {
    ChooseProductForm(0);
    SetMatmulIsaForTest(std::nullopt);
  }
  static DType dtype() { return GetParam().dtype; }
};

INSTANTIATE_TEST_SUITE_P(Isa, MatmulTest, testing::ValuesIn(Variants()),
                         [](const auto& param) { return param.param.name; });

std::vector<MatmulVariant> Int8Variants() {
  std::vector<MatmulVariant> variants = Variants();
  std::erase_if(variants, [](const MatmulVariant& variant) { return variant.dtype != DType::kI8; });
  return variants;
}
class Int8MatmulTest : public MatmulTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Int8MatmulTest);
INSTANTIATE_TEST_SUITE_P(Isa, Int8MatmulTest, testing::ValuesIn(Int8Variants()),
                         [](const auto& param) { return param.param.name; });

// Rows that start at any float, and where k allows it rows that can be read 16 bytes at a time.
int64_t GapFor(int64_t k) { return k % 4 == 0 ? 4 : kMatrixGap; }

TEST_P(MatmulTest, EqualsTheReference) {
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  std::vector<Shape> shapes = {{1, 1},   {2, 3},   {7, 16},    {31, 33},
                               {33, 47}, {64, 32}, {576, 100}, {1535, 257}};
  std::vector<int64_t> batches = {1, 2, 3, 5, 14, 15, 16, 17, 29, 32, 33};
  if (SlowKernels()) {
    shapes = {{1, 1}, {7, 16}, {33, 47}, {64, 32}, {576, 20}, {1100, 9}};
    batches = {1, 3, 9, 29};
  }
  const double limit = device->backend() == Backend::kCpu ? 1e-12 : kNmseF32;  // a GPU's sums may truncate
  for (const auto& [k, n] : shapes) {
    for (int64_t m : batches) {
      SCOPED_TRACE(fmt::format("m {} n {} k {}", m, n, k));
      Matrix x = Matrix::Random(m, k, 1, GapFor(k)), y(m, n), bias = Matrix::Random(1, n, 3);
      const TestWeight weight(dtype(), n, k, 2);
      const PackedMatrix packed = weight.Pack(*device);
      const TensorView bias_view(bias.row(0), DType::kF32, {n});
      std::vector<double> expected(static_cast<size_t>(m * n));
      MatmulReference(x.View(), weight.view, bias_view, expected.data(), weight.scales);
      const MatmulArgs args{.x = x.View(), .weight = &packed, .y = y.View(), .bias = bias_view};
      RunKernel(kMatmul, args, *device);
      EXPECT_LT(Nmse(y, m, n, expected), limit);
      EXPECT_TRUE(y.RedZonesIntact());
    }
  }
}

// -128 is none of QuantizeRows, but of folders that others made.
TEST_P(Int8MatmulTest, EveryValueIsMultipliedAsItIs) {
  const std::unique_ptr<Device> device = CreateTestDevice(1);
  constexpr int64_t kN = 40, kK = 256, kRows = 41;
  std::vector<int8_t> values;
  for (int64_t i = 0; i < kN * kK; ++i) values.push_back(static_cast<int8_t>((i + i / kK * 37) % 256));
  const std::vector<float> scales(kN, 0.25f);
  const TensorView weight(values.data(), DType::kI8, {kN, kK});
  const absl::StatusOr<PackedMatrix> packed = PackedMatrix::PackInt8(weight, scales, *device);
  ASSERT_TRUE(packed.ok()) << packed.status();
  Matrix x(kRows, kK, GapFor(kK)), y(kRows, kN);
  for (int64_t r = 0; r < kRows; ++r)  // one value of each row of W at a time, exactly
    for (int64_t c = 0; c < kK; ++c) x.at(r, c) = c == r * 29 % kK ? 4.0f : 0.0f;
  RunKernel(kMatmul, {.x = x.View(), .weight = &*packed, .y = y.View(), .bias = {}}, *device);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t n = 0; n < kN; ++n)
      ASSERT_EQ(y.at(r, n), static_cast<float>(values[static_cast<size_t>(n * kK + r * 29 % kK)]))
          << r << " " << n;
}

TEST_P(MatmulTest, AccumulatesOntoTheOldOutput) {
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  for (const auto& [k, n] : {Shape{33, 47}, {256, 96}}) {
    constexpr int64_t kRows = 17;
    Matrix x = Matrix::Random(kRows, k, 1), y = Matrix::Random(kRows, n, 4), product(kRows, n);
    Matrix old = y;
    const TestWeight weight(dtype(), n, k, 2);
    const PackedMatrix packed = weight.Pack(*device);
    MatmulArgs args{.x = x.View(), .weight = &packed, .y = product.View(), .bias = {}};
    RunKernel(kMatmul, args, *device);
    args.y = y.View();
    args.accumulate = true;
    RunKernel(kMatmul, args, *device);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < n; ++c) ASSERT_EQ(y.at(r, c), old.at(r, c) + product.at(r, c)) << r << " " << c;
    EXPECT_TRUE(y.RedZonesIntact());
  }
}

// The batch law. The first four shapes are where another library's rows were seen to change with m.
TEST_P(MatmulTest, RowsAreBitEqualWhateverTheBatchAndTheThreads) {
  std::vector<Shape> shapes = {{1536, 80}, {1536, 192}, {2048, 97}, {2305, 33},
                               {65, 300},  {31, 7},     {768, 64}};
  std::vector<int64_t> batches = {1, 2, 3, 15, 16, 17, 64, 65, 128, 130};
  std::vector<int> threads = {1, 2, 3};
  if (SlowKernels()) {
    shapes = {{1100, 5}, {576, 17}, {65, 40}, {31, 7}, {24, 1000}};  // the last one in tiles
    batches = {2, 8, 9, 16, 17, 33, 70};
    threads = {1};
  }
  const int64_t rows = batches.back();
  std::vector<std::unique_ptr<Device>> devices;
  for (int count : threads) devices.push_back(CreateTestDevice(count));
  for (const auto& [k, n] : shapes) {
    Matrix x = Matrix::Random(rows, k, 1, GapFor(k)), alone(rows, n), bias = Matrix::Random(1, n, 3);
    const TestWeight weight(dtype(), n, k, 2);
    const PackedMatrix packed = weight.Pack(*devices[0]);
    MatmulArgs args{.x = {}, .weight = &packed, .y = {}, .bias = TensorView(bias.row(0), DType::kF32, {n})};
    const int64_t step = SlowKernels() ? 3 : 1;  // between the rows that are compared
    for (int64_t r = 0; r < rows; r += step) {
      args.x = x.View(r, 1);
      args.y = alone.View(r, 1);
      RunKernel(kMatmul, args, *devices[0]);
    }
    for (const std::unique_ptr<Device>& device : devices) {
      for (int64_t m : batches) {
        for (int64_t first : {int64_t{0}, rows - m}) {
          Matrix y(rows, n);
          args.x = x.View(first, m);
          args.y = y.View(first, m);
          RunKernel(kMatmul, args, *device);
          for (int64_t r = (first + step - 1) / step * step; r < first + m; r += step)
            ASSERT_EQ(std::memcmp(y.row(r), alone.row(r), static_cast<size_t>(n) * sizeof(float)), 0)
                << "row " << r << " of m " << m << " from " << first << ", n " << n << " k " << k;
          ASSERT_TRUE(y.RedZonesIntact());
        }
      }
    }
  }
}

TEST_P(MatmulTest, NonFiniteActivationsStayInTheirRow) {
  constexpr int64_t kRows = 29, kK = 77, kN = 70;
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), clean(kRows, kN), y(kRows, kN);
  const TestWeight weight(dtype(), kN, kK, 2);
  const PackedMatrix packed = weight.Pack(*device);
  MatmulArgs args{.x = x.View(), .weight = &packed, .y = clean.View(), .bias = {}};
  RunKernel(kMatmul, args, *device);
  x.at(3, 0) = kNaN;
  x.at(12, 40) = std::numeric_limits<float>::infinity();
  x.at(28, kK - 1) = -std::numeric_limits<float>::infinity();  // shares its pair with padding
  args.y = y.View();
  RunKernel(kMatmul, args, *device);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kN; ++c) {
      if (r == 3)
        ASSERT_TRUE(std::isnan(y.at(r, c))) << c;
      else if (r == 12 || r == 28)
        ASSERT_TRUE(std::isinf(y.at(r, c))) << r << " " << c;
      else
        ASSERT_EQ(y.at(r, c), clean.at(r, c)) << r << " " << c;
    }
  }
}

TEST_P(MatmulTest, EmptyBatchIsNothing) {
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  Matrix x(1, 8), y(1, 40);
  const TestWeight weight(dtype(), 40, 8, 2);
  const PackedMatrix packed = weight.Pack(*device);
  RunKernel(kMatmul, {.x = x.View(0, 0), .weight = &packed, .y = y.View(0, 0), .bias = {}}, *device);
  for (int64_t c = 0; c < 40; ++c) EXPECT_TRUE(std::isnan(y.at(0, c)));
}

TEST(PackedMatrixTest, RowsComeBackExactly) {
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    for (const auto& [k, n] : {Shape{1, 1}, {5, 33}, {64, 32}, {129, 70}}) {
      const TestWeight weight(dtype, n, k, 2);
      const PackedMatrix packed = weight.Pack(*device);
      EXPECT_EQ(packed.n(), n);
      EXPECT_EQ(packed.k(), k);
      EXPECT_EQ(packed.dtype(), dtype);
      std::vector<int32_t> ids;
      for (int64_t r = n - 1; r >= 0; --r) ids.push_back(static_cast<int32_t>(r));
      Matrix y(n, k);
      RunKernel(kGatherPackedRows,
                {.table = &packed, .index = TensorView(ids.data(), DType::kI32, {n}), .y = y.View()},
                *device);
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t c = 0; c < k; ++c) {
          ASSERT_EQ(y.at(n - 1 - r, c), weight.At(r, c)) << r << " " << c;
        }
      }
      EXPECT_TRUE(y.RedZonesIntact());
    }
  }
}

TEST(PackedMatrixTest, RefusesWhatItCannotMultiply) {
  const std::unique_ptr<Device> device = CreateTestDevice(1);
  std::vector<float> data(64);
  const auto code = [&](const TensorView& view) { return PackedMatrix::Pack(view, *device).status().code(); };
  EXPECT_EQ(code(TensorView(data.data(), DType::kF16, {8, 8})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(TensorView(data.data(), DType::kF32, {8})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(TensorView(data.data(), DType::kF32, {0, 8})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(TensorView(data.data(), DType::kF32, {8, 0})), absl::StatusCode::kInvalidArgument);
  const absl::Status status =
      PackedMatrix::Pack(TensorView(data.data(), DType::kF16, {8, 8}), *device).status();
  EXPECT_NE(status.message().find("f16"), std::string_view::npos) << status;
  EXPECT_EQ(device->allocated_bytes(), 0);
}

}  // namespace
}  // namespace weir
