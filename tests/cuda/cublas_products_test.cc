// Products through cuBLASLt: when they are taken, and that what does not keep the batch law never is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/ops/matmul/cublas_check.h"
#include "runtime/ops/matmul/cuda_products.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/pack.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/runtime/ops/matmul_case.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMaxRows = 23;
constexpr int64_t kN = 12, kK = 60, kPaddedK = 64;

class CublasProducts : public testing::Test {
 protected:
  CublasProducts() : weight_(DType::kBF16, kN, kK, 2), device_(CreateTestDevice()) {
    emulator::Options().cublaslt = true;
    matmul::SetMaxCublasRowsForTest(kMaxRows);
  }
  ~CublasProducts() override {
    emulator::Options().cublaslt = false;
    emulator::Options().cublaslt_reverses = nullptr;
    matmul::SetMaxCublasRowsForTest(0);
  }

  // y of rows [first, first + m) of x, from [0, `gap`) floats off a border of 16 bytes.
  Matrix Run(const PackedMatrix& packed, int64_t first, int64_t m, int64_t gap = 4, bool bias = false,
             bool accumulate = false) {
    Matrix x = Matrix::Random(2 * kMaxRows, kK, 1), y = Matrix::Random(m, kN, 4, gap);
    Matrix biases = Matrix::Random(1, kN, 3);
    MatmulArgs args{.x = x.View(first, m), .weight = &packed, .y = y.View(), .bias = {}};
    if (bias) args.bias = TensorView(biases.row(0), DType::kF32, {kN});
    args.accumulate = accumulate;
    RunKernel(kMatmul, args, *device_);
    EXPECT_TRUE(y.RedZonesIntact());
    return y;
  }
  static bool SameRow(Matrix& a, int64_t row_of_a, Matrix& b, int64_t row_of_b) {
    return std::memcmp(a.row(row_of_a), b.row(row_of_b), kN * sizeof(float)) == 0;
  }
  // Rows of every number that there is, at other places, against all at once.
  void ExpectTheBatchLaw(const PackedMatrix& packed) {
    Matrix all = Run(packed, 0, kMaxRows);
    for (int64_t m = 1; m <= kMaxRows; ++m) {
      const int64_t first = kMaxRows - m;
      Matrix some = Run(packed, first, m);
      for (int64_t r = 0; r < m; ++r) ASSERT_TRUE(SameRow(some, r, all, first + r)) << r << " of " << m;
    }
  }

  const TestWeight weight_;
  const std::unique_ptr<Device> device_;
};

TEST_F(CublasProducts, AShapeIsPlannedOnceAndItsMemoryCounted) {
  {
    const PackedMatrix first = weight_.Pack(*device_);
    const PackedMatrix second = weight_.Pack(*device_);
    const PackedMatrix other = TestWeight(DType::kBF16, 7, kK, 5).Pack(*device_);
    ASSERT_NE(first.cuda_product()->plan, nullptr);
    EXPECT_EQ(first.cuda_product(), second.cuda_product());
    EXPECT_NE(first.cuda_product(), other.cuda_product());
    EXPECT_EQ(first.cuda_product()->memory, other.cuda_product()->memory);
    EXPECT_EQ(device_->allocated_bytes(),
              first.bytes() + second.bytes() + other.bytes() + kPaddedK * 2 * matmul::kCudaScratchRows +
                  kN * 4 * matmul::kStagedRows + matmul::CublasContext::kWorkspaceBytes);
    EXPECT_THAT(DescribeProducts(*device_),
                AllOf(HasSubstr("bf16 products on cuda:0: by cuBLASLt "), HasSubstr(": 7x64, 12x64")));
  }
  EXPECT_EQ(device_->allocated_bytes(), 0);
  EXPECT_EQ(DescribeProducts(*device_), "");
}

TEST_F(CublasProducts, ArePlannedForBf16Alone) {
  const TestWeight int8(DType::kI8, kN, kK, 3);
  const PackedMatrix packed = int8.Pack(*device_);
  EXPECT_EQ(packed.cuda_product()->plan, nullptr);
  EXPECT_EQ(packed.cuda_product()->memory->cublas, nullptr);
  EXPECT_EQ(device_->allocated_bytes(), packed.bytes() + kPaddedK * 2 * matmul::kCudaScratchRows);
  EXPECT_EQ(DescribeProducts(*device_), "");
  const PackedMatrix bf16 = weight_.Pack(*device_);
  ASSERT_NE(bf16.cuda_product()->plan, nullptr);
  EXPECT_EQ(bf16.cuda_product()->memory, packed.cuda_product()->memory);
  EXPECT_THAT(DescribeProducts(*device_), HasSubstr("by cuBLASLt"));
}

TEST_F(CublasProducts, RowsOfAProductAreAsManyAsTheCheckHasMemoryFor) {
  matmul::SetMaxCublasRowsForTest(0);
  EXPECT_EQ(matmul::MaxCublasRows(768), 1024);
  EXPECT_EQ(matmul::MaxCublasRows(50280), 640);
  EXPECT_EQ(matmul::MaxCublasRows(1 << 20), 64);
}

// Where y lies, the bias and the old y change neither the product nor the order of the sums after it.
TEST_F(CublasProducts, EveryOutputHasTheSameSums) {
  const PackedMatrix packed = weight_.Pack(*device_);
  constexpr int64_t kRows = 2 * kMaxRows - 3;  // two pieces, or three of kStagedRows
  Matrix product = Run(packed, 0, kRows);
  Matrix old = Matrix::Random(kRows, kN, 4), biases = Matrix::Random(1, kN, 3);
  for (const int64_t gap : {4, 5}) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        Matrix y = Run(packed, 0, kRows, gap, bias, accumulate);
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < kN; ++c) {
            float want = product.at(r, c);
            if (bias) want += biases.at(0, c);
            if (accumulate) want = old.at(r, c) + want;
            ASSERT_EQ(y.at(r, c), want) << r << " " << c << " gap " << gap << bias << accumulate;
          }
        }
      }
    }
  }
}

TEST_F(CublasProducts, CanBeRecorded) {
  const PackedMatrix packed = weight_.Pack(*device_);
  Matrix expected = Run(packed, 3, 9);
  Matrix x = Matrix::Random(2 * kMaxRows, kK, 1), y(9, kN, 4);
  DeviceMirror mirror(*device_);
  MatmulArgs args{.x = x.View(3, 9), .weight = &packed, .y = y.View(), .bias = {}};
  VisitViews(args, [&](const TensorView& view) { mirror.Add(view); });
  mirror.Upload();
  MatmulArgs twins = args;
  VisitViews(twins, [&](TensorView& view) { view = mirror.Twin(view); });
  const int64_t bytes = device_->allocated_bytes();
  ASSERT_TRUE(device_->stream().BeginCapture().ok());
  Launch(kMatmul, twins, device_->stream());
  const auto graph = device_->stream().EndCapture();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(device_->allocated_bytes(), bytes);
  device_->stream().Replay(**graph);
  ASSERT_TRUE(device_->stream().Synchronize().ok());
  mirror.Store(mirror.Download());
  for (int64_t r = 0; r < 9; ++r) EXPECT_TRUE(SameRow(y, r, expected, r)) << r;
}

struct Fault {
  const char* name;
  bool (*reverses)(int algorithm, uint64_t columns, uint64_t column);
};

class CublasFaults : public CublasProducts, public testing::WithParamInterface<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds, CublasFaults,
    testing::Values(Fault{"OneNumberOfRows", [](int, uint64_t columns, uint64_t) { return columns == 17; }},
                    Fault{"OneRow", [](int, uint64_t columns, uint64_t) { return columns == 1; }},
                    Fault{"ManyRows", [](int, uint64_t columns, uint64_t) { return columns > 16; }},
                    Fault{"AllRows", [](int, uint64_t columns, uint64_t) { return columns == kMaxRows; }},
                    Fault{"OnePlace", [](int, uint64_t, uint64_t column) { return column == 5; }},
                    Fault{"LastPlace",
                          [](int, uint64_t columns, uint64_t column) { return column + 1 == columns; }}),
    [](const auto& param) { return std::string(param.param.name); });

// All algorithms have it: the project's own kernels serve, with their own bits.
TEST_P(CublasFaults, AreSeenWhenTheWeightIsPacked) {
  emulator::Options().cublaslt = false;
  std::vector<Matrix> own;
  {
    const PackedMatrix packed = weight_.Pack(*device_);
    own.push_back(Run(packed, 0, kMaxRows));
  }
  emulator::Options().cublaslt = true;
  emulator::Options().cublaslt_reverses = GetParam().reverses;
  const PackedMatrix packed = weight_.Pack(*device_);
  EXPECT_EQ(packed.cuda_product()->plan, nullptr);
  EXPECT_THAT(DescribeProducts(*device_),
              AllOf(HasSubstr("by Weir's own kernels, as no algorithm of cuBLASLt"), HasSubstr(": 12x64")));
  Matrix y = Run(packed, 0, kMaxRows);
  for (int64_t r = 0; r < kMaxRows; ++r) EXPECT_TRUE(SameRow(y, r, own[0], r)) << r;
}

TEST_F(CublasProducts, TheNextAlgorithmIsTakenWhereOneBreaksTheLaw) {
  emulator::Options().cublaslt_reverses = [](int algorithm, uint64_t columns, uint64_t) {
    return algorithm + 1 < emulator::kCublasLtAlgorithms && columns == 7;
  };
  const PackedMatrix packed = weight_.Pack(*device_);
  ASSERT_NE(packed.cuda_product()->plan, nullptr);
  ExpectTheBatchLaw(packed);
}

TEST_F(CublasProducts, AreDoneWithoutWhereTheLibraryIsMissing) {
  emulator::Options().cublaslt = false;
  const PackedMatrix packed = weight_.Pack(*device_);
  EXPECT_EQ(packed.cuda_product()->plan, nullptr);
  EXPECT_THAT(
      DescribeProducts(*device_),
      AllOf(HasSubstr("by Weir's own kernels, as cuBLASLt cannot be used"), HasSubstr("libcublasLt.so.13")));
  ExpectTheBatchLaw(packed);
}

TEST_F(CublasProducts, ALostDeviceOrTooLittleMemoryIsAnErrorOfTheLoad) {
  emulator::FailKernel(30, cudaErrorIllegalAddress);  // in the middle of the check
  const absl::Status lost = PackedMatrix::Pack(weight_.view, *device_).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kInternal) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("cudaErrorIllegalAddress"));
  emulator::ResetDevices();
  const auto total_memory =
      std::exchange(emulator::Options().total_memory, emulator::LiveDeviceBytes() + (size_t{16} << 20));
  matmul::SetMaxCublasRowsForTest(200000);  // times 12 x 4 bytes, twice
  const absl::Status full = PackedMatrix::Pack(weight_.view, *device_).status();
  emulator::Options().total_memory = total_memory;
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("19200000 bytes on cuda:0"));
  EXPECT_EQ(device_->allocated_bytes(), 0);
}

TEST(CublasLtLibrary, IsNamedWhereItCannotBeLoaded) {
  constexpr const char* kNone[] = {"libno-such-library.so.13", "libm.so.6"};
  const absl::Status status = LoadCublasLtFrom(kNone).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libno-such-library.so.13"), HasSubstr("libm.so.6 has no cublasLtGetVersion")));
}

}  // namespace
}  // namespace weir
