#include "runtime/ops/matmul/matmul.h"

#include <malloc.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "runtime/ops/matmul/isa.h"

namespace weir {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGap = 5;  // values between two rows of a strided matrix, and red zone at both ends

// A matrix whose rows lie kGap apart in memory full of NaN: reading beyond a row spoils the result, writing
// beyond it is seen by RedZonesIntact.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns)
      : rows_(rows), stride_(columns + kGap), data_(static_cast<size_t>(kGap + rows * stride_), kNaN) {}

  static Matrix Random(int64_t rows, int64_t columns, uint32_t seed) {
    Matrix matrix(rows, columns);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) matrix.at(r, c) = normal(random);
    return matrix;
  }

  float* row(int64_t r) { return data_.data() + kGap + r * stride_; }
  float& at(int64_t r, int64_t c) { return row(r)[c]; }
  TensorView View(int64_t first, int64_t count) {
    return TensorView(row(0), DType::kF32, {rows_, stride_}).Columns(0, stride_ - kGap).Rows(first, count);
  }
  TensorView View() { return View(0, rows_); }
  bool RedZonesIntact() {
    for (int64_t r = -1; r < rows_; ++r)
      for (int64_t c = 0; c < kGap; ++c)
        if (!std::isnan(row(r + 1)[c - kGap])) return false;
    return true;
  }

 private:
  int64_t rows_, stride_;
  std::vector<float> data_;
};

// A weight in both dtypes.
struct Weight {
  Weight(DType dtype, int64_t n, int64_t k, uint32_t seed)
      : values(Matrix::Random(n, k, seed)), view(values.View()) {
    if (dtype == DType::kF32) return;
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < k; ++c) rounded.push_back(BF16::FromFloat(values.at(r, c)));
    view = TensorView(rounded.data(), DType::kBF16, {n, k});
  }
  Weight(const Weight&) = delete;
  PackedMatrix Pack(Device& device) const {
    absl::StatusOr<PackedMatrix> packed = PackedMatrix::Pack(view, device);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }
  Matrix values;
  std::vector<BF16> rounded;
  TensorView view;
};

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

class MatmulTest : public testing::TestWithParam<std::tuple<MatmulIsa, DType>> {
 protected:
  void SetUp() override {
    const MatmulIsa isa = std::get<0>(GetParam());
    if (!MatmulIsaSupported(isa)) GTEST_SKIP() << "this CPU has no " << MatmulIsaName(isa);
    SetMatmulIsaForTest(isa);
  }
  void TearDown() override { SetMatmulIsaForTest(std::nullopt); }
  static DType dtype() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, MatmulTest,
                         testing::Combine(testing::ValuesIn(kAllMatmulIsas),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         [](const auto& param) {
                           return fmt::format("{}_{}", MatmulIsaName(std::get<0>(param.param)),
                                              DTypeName(std::get<1>(param.param)));
                         });

TEST_P(MatmulTest, EqualsTheReference) {
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  for (const auto& [k, n] :
       {Shape{1, 1}, {2, 3}, {7, 16}, {31, 33}, {33, 47}, {64, 32}, {576, 100}, {1535, 257}}) {
    for (int64_t m : {1, 2, 3, 5, 14, 15, 29}) {
      SCOPED_TRACE(fmt::format("m {} n {} k {}", m, n, k));
      Matrix x = Matrix::Random(m, k, 1), y(m, n), bias = Matrix::Random(1, n, 3);
      const Weight weight(dtype(), n, k, 2);
      const PackedMatrix packed = weight.Pack(*device);
      const TensorView bias_view(bias.row(0), DType::kF32, {n});
      std::vector<double> expected(static_cast<size_t>(m * n));
      MatmulReference(x.View(), weight.view, bias_view, expected.data());
      const MatmulArgs args{.x = x.View(), .weight = &packed, .y = y.View(), .bias = bias_view};
      Launch(kMatmul, args, device->stream());
      EXPECT_LT(Nmse(y, m, n, expected), 1e-12);
      EXPECT_TRUE(y.RedZonesIntact());
    }
  }
}

TEST_P(MatmulTest, AccumulatesOntoTheOldOutput) {
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  for (const auto& [k, n] : {Shape{33, 47}, {256, 96}}) {
    constexpr int64_t kRows = 17;
    Matrix x = Matrix::Random(kRows, k, 1), y = Matrix::Random(kRows, n, 4), product(kRows, n);
    Matrix old = y;
    const Weight weight(dtype(), n, k, 2);
    const PackedMatrix packed = weight.Pack(*device);
    MatmulArgs args{.x = x.View(), .weight = &packed, .y = product.View(), .bias = {}};
    Launch(kMatmul, args, device->stream());
    args.y = y.View();
    args.accumulate = true;
    Launch(kMatmul, args, device->stream());
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < n; ++c) ASSERT_EQ(y.at(r, c), old.at(r, c) + product.at(r, c)) << r << " " << c;
    EXPECT_TRUE(y.RedZonesIntact());
  }
}

// The batch law. The first four shapes are where another library's rows were seen to change with m.
TEST_P(MatmulTest, RowsAreBitEqualWhateverTheBatchAndTheThreads) {
  constexpr int64_t kRows = 130;
  std::vector<std::unique_ptr<Device>> devices;
  for (int threads : {1, 2, 3}) devices.push_back(CreateCpuDevice(threads));
  for (const auto& [k, n] :
       {Shape{1536, 80}, {1536, 192}, {2048, 97}, {2305, 33}, {65, 300}, {31, 7}, {768, 64}}) {
    Matrix x = Matrix::Random(kRows, k, 1), alone(kRows, n), bias = Matrix::Random(1, n, 3);
    const Weight weight(dtype(), n, k, 2);
    const PackedMatrix packed = weight.Pack(*devices[0]);
    MatmulArgs args{.x = {}, .weight = &packed, .y = {}, .bias = TensorView(bias.row(0), DType::kF32, {n})};
    for (int64_t r = 0; r < kRows; ++r) {
      args.x = x.View(r, 1);
      args.y = alone.View(r, 1);
      Launch(kMatmul, args, devices[0]->stream());
    }
    for (const std::unique_ptr<Device>& device : devices) {
      for (int64_t m : {1, 2, 3, 15, 16, 17, 64, 65, 128, 130}) {
        for (int64_t first : {int64_t{0}, kRows - m}) {
          Matrix y(kRows, n);
          args.x = x.View(first, m);
          args.y = y.View(first, m);
          Launch(kMatmul, args, device->stream());
          for (int64_t r = first; r < first + m; ++r)
            ASSERT_EQ(std::memcmp(y.row(r), alone.row(r), static_cast<size_t>(n) * sizeof(float)), 0)
                << "row " << r << " of m " << m << " from " << first << ", n " << n << " k " << k;
          ASSERT_TRUE(y.RedZonesIntact());
        }
      }
    }
  }
}

TEST_P(MatmulTest, RowsAreBitEqualAcrossSeveralPasses) {
  constexpr int64_t kRows = 1031, kK = 515, kN = 65;
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), y(kRows, kN), alone(kRows, kN);
  const Weight weight(dtype(), kN, kK, 2);
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

TEST_P(MatmulTest, NonFiniteActivationsStayInTheirRow) {
  constexpr int64_t kRows = 29, kK = 77, kN = 70;
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), clean(kRows, kN), y(kRows, kN);
  const Weight weight(dtype(), kN, kK, 2);
  const PackedMatrix packed = weight.Pack(*device);
  MatmulArgs args{.x = x.View(), .weight = &packed, .y = clean.View(), .bias = {}};
  Launch(kMatmul, args, device->stream());
  x.at(3, 0) = kNaN;
  x.at(12, 40) = std::numeric_limits<float>::infinity();
  x.at(28, kK - 1) = -std::numeric_limits<float>::infinity();  // shares its pair with padding
  args.y = y.View();
  Launch(kMatmul, args, device->stream());
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

// Workers flush denormals and a test's thread does not: without care the bits would tell who did the work.
TEST_P(MatmulTest, DenormalsCountAsZeroOnEveryThread) {
  constexpr int64_t kRows = 64, kK = 64, kN = 256;
  Matrix x(kRows, kK), y(kRows, kN);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kK; ++c) x.at(r, c) = 1e-25f;
  Weight tiny(dtype(), kN, kK, 2);
  for (int64_t r = 0; r < kN; ++r)
    for (int64_t c = 0; c < kK; ++c) tiny.values.at(r, c) = 1e-15f;
  for (BF16& value : tiny.rounded) value = BF16::FromFloat(1e-15f);
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

TEST_P(MatmulTest, NoMemoryAfterTheLargestBatch) {
  constexpr int64_t kRows = 600, kK = 300, kN = 40;
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x = Matrix::Random(kRows, kK, 1), y(kRows, kN);
  const Weight weight(dtype(), kN, kK, 2);
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

TEST_P(MatmulTest, EmptyBatchIsNothing) {
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  Matrix x(1, 8), y(1, 40);
  const Weight weight(dtype(), 40, 8, 2);
  const PackedMatrix packed = weight.Pack(*device);
  Launch(kMatmul, {.x = x.View(0, 0), .weight = &packed, .y = y.View(0, 0), .bias = {}}, device->stream());
  for (int64_t c = 0; c < 40; ++c) EXPECT_TRUE(std::isnan(y.at(0, c)));
}

TEST(PackedMatrixTest, RowsComeBackExactly) {
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [k, n] : {Shape{1, 1}, {5, 33}, {64, 32}, {129, 70}}) {
      const Weight weight(dtype, n, k, 2);
      const PackedMatrix packed = weight.Pack(*device);
      EXPECT_EQ(packed.n(), n);
      EXPECT_EQ(packed.k(), k);
      EXPECT_EQ(packed.dtype(), dtype);
      std::vector<int32_t> ids;
      for (int64_t r = n - 1; r >= 0; --r) ids.push_back(static_cast<int32_t>(r));
      Matrix y(n, k);
      Launch(kGatherPackedRows,
             {.table = &packed, .index = TensorView(ids.data(), DType::kI32, {n}), .y = y.View()},
             device->stream());
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t c = 0; c < k; ++c) {
          const float want =
              dtype == DType::kF32 ? weight.view.row<float>(r)[c] : weight.view.row<BF16>(r)[c].ToFloat();
          ASSERT_EQ(y.at(n - 1 - r, c), want) << r << " " << c;
        }
      }
      EXPECT_TRUE(y.RedZonesIntact());
    }
  }
}

TEST(PackedMatrixTest, RefusesWhatItCannotMultiply) {
  const std::unique_ptr<Device> device = CreateCpuDevice(1);
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

TEST(PackedMatrixTest, MemoryIsWhatItSaysAndComesBack) {
  const std::unique_ptr<Device> device = CreateCpuDevice(1);
  {
    const Weight weight(DType::kBF16, 33, 7, 2);
    const PackedMatrix packed = weight.Pack(*device);
    EXPECT_EQ(packed.bytes(), 64 * 8 * 2);
    EXPECT_EQ(device->allocated_bytes(), packed.bytes());
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

}  // namespace
}  // namespace weir
