// The forms of the CUDA matmul give the same bits: which one runs is a matter of time alone.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "fmt/format.h"
#include "runtime/ops/matmul/cuda_products.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/matmul_cuda.h"
#include "runtime/ops/matmul/pack.h"
#include "runtime/tensor/dtype.h"
#include "tests/cuda/device_array.h"
#include "tests/runtime/ops/matmul_case.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr CudaMatmulForm kForms[] = {CudaMatmulForm::kStream, CudaMatmulForm::kTile64,
                                     CudaMatmulForm::kTile128};

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct FormCase {
  DType dtype;
  int64_t n, k;
  int64_t x_offset, x_gap;  // rows of x aligned to 16 bytes, or not
};

class MatmulForms : public testing::TestWithParam<FormCase> {
 protected:
  // y of rows [first, first + m) of x, with a bias and an old y.
  std::vector<float> Run(const DeviceArray<float>& x, const DeviceArray<unsigned char>& w,
                         const DeviceArray<float>& bias, int64_t first, int64_t m, CudaMatmulForm form) {
    const FormCase& c = GetParam();
    constexpr int64_t kScratchRows = 96;  // fewer than m, for once
    const DeviceArray<float> y(Normal(m * c.n, 4));
    const DeviceArray<float> scales(Normal(c.n, 5));
    const DeviceArray<unsigned char> scratch(static_cast<size_t>(kScratchRows * ScratchRowBytes()));
    CudaMatmul a;
    a.x_stride = c.k + c.x_gap;
    a.x = x.data() + c.x_offset + first * a.x_stride;
    a.w = w.data();
    a.bias = bias.data();
    a.y = y.data();
    a.y_stride = c.n;
    a.m = m;
    a.n = c.n;
    a.k = c.k;
    a.w_row_bytes = RowBytes();
    a.x_row_bytes = ScratchRowBytes();
    a.scales = scales.data();
    a.scratch = scratch.data();
    a.scratch_rows = kScratchRows;
    a.accumulate = true;
    if (c.dtype == DType::kBF16)
      LaunchCudaMatmulBf16(a, form, nullptr);
    else if (c.dtype == DType::kI8)
      LaunchCudaMatmulInt8(a, form, nullptr);
    else
      LaunchCudaMatmulF32(a, form, nullptr);
    std::vector<float> result = y.Read();
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    ExpectNoDeviceFaults();
    return result;
  }

  static int64_t Padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }
  int64_t RowBytes() const {
    return Padded(GetParam().k * static_cast<int64_t>(DTypeBytes(GetParam().dtype)));
  }
  int64_t ScratchRowBytes() const { return Padded(GetParam().k * 2); }

  std::vector<unsigned char> Weights() const {
    const FormCase& c = GetParam();
    const std::vector<float> values = Normal(c.n * c.k, 2);
    std::vector<unsigned char> bytes(static_cast<size_t>(c.n * RowBytes()));
    for (int64_t i = 0; i < c.n * c.k; ++i) {
      unsigned char* const row = bytes.data() + i / c.k * RowBytes();
      const float value = values[static_cast<size_t>(i)];
      const BF16 rounded = BF16::FromFloat(value);
      if (c.dtype == DType::kI8)
        row[Int8Place(i % c.k)] = static_cast<unsigned char>(std::lround(value * 1000));  // of any sign
      else if (c.dtype == DType::kBF16)
        std::memcpy(row + i % c.k * 2, &rounded, 2);
      else
        std::memcpy(row + i % c.k * 4, &value, 4);
    }
    return bytes;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Cases, MatmulForms,
    testing::Values(FormCase{DType::kBF16, 33, 37, 1, 2}, FormCase{DType::kBF16, 97, 204, 0, 4},
                    FormCase{DType::kBF16, 140, 72, 0, 8}, FormCase{DType::kBF16, 9, 1100, 3, 1},
                    FormCase{DType::kI8, 33, 37, 1, 2}, FormCase{DType::kI8, 140, 204, 0, 4},
                    FormCase{DType::kI8, 9, 1100, 3, 1}, FormCase{DType::kF32, 33, 37, 1, 2},
                    FormCase{DType::kF32, 70, 204, 0, 4}, FormCase{DType::kF32, 9, 600, 3, 1}),
    [](const auto& param) {
      return fmt::format("{}_{}x{}", DTypeName(param.param.dtype), param.param.n, param.param.k);
    });

// Each int8, -128 too, times each place of a row: y is x times the scale where x picks out one value.
TEST(Int8Products, EveryValueIsExactAtEveryPlace) {
  constexpr int64_t kK = 48, kN = 256;
  std::vector<unsigned char> rows(static_cast<size_t>(kN * kK));
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t k = 0; k < kK; ++k)
      rows[static_cast<size_t>(n * kK + Int8Place(k))] = static_cast<unsigned char>(n + 5 * k);
  std::vector<float> picks(static_cast<size_t>(kK * kK));
  for (int64_t k = 0; k < kK; ++k) picks[static_cast<size_t>(k * kK + k)] = 1.0f;
  const DeviceArray<unsigned char> w(rows);
  const DeviceArray<float> x(picks);
  const DeviceArray<float> scales(Normal(kN, 5));
  const std::vector<float> scale = scales.Read();
  const DeviceArray<float> y(std::vector<float>(static_cast<size_t>(kK * kN)));
  CudaMatmul a;
  a.x = x.data();
  a.w = w.data();
  a.y = y.data();
  a.scales = scales.data();
  a.x_stride = a.k = a.m = a.w_row_bytes = kK;
  a.y_stride = a.n = kN;
  LaunchCudaMatmulInt8(a, CudaMatmulForm::kStream, nullptr);
  const std::vector<float> result = y.Read();
  for (int64_t k = 0; k < kK; ++k)
    for (int64_t n = 0; n < kN; ++n)
      ASSERT_EQ(result[static_cast<size_t>(k * kN + n)],
                scale[static_cast<size_t>(n)] * static_cast<float>(static_cast<int8_t>(n + 5 * k)))
          << n << " " << k;
}

TEST_P(MatmulForms, GiveTheSameBits) {
  const FormCase& c = GetParam();
  constexpr int64_t kRows = 131;
  const DeviceArray<float> x(Normal(c.x_offset + kRows * (c.k + c.x_gap), 1));
  const DeviceArray<unsigned char> w(Weights());
  const DeviceArray<float> bias(Normal(c.n, 3));
  for (int schedule = 0; schedule < NumSchedules(); ++schedule) {
    ChooseSchedule(schedule);
    for (const auto& [first, m] :
         {std::pair{int64_t{0}, int64_t{4}}, {3, 13}, {40, 30}, {60, 66}, {0, kRows}}) {
      if (schedule > 0 && m > 30) continue;
      const std::vector<float> expected = Run(x, w, bias, first, m, CudaMatmulForm::kStream);
      for (const float value : expected) ASSERT_TRUE(std::isfinite(value));
      for (const CudaMatmulForm form : kForms)
        EXPECT_TRUE(Run(x, w, bias, first, m, form) == expected)
            << "form " << static_cast<int>(form) << ", m " << m << " from " << first;
    }
  }
  ChooseSchedule(0);
}

TEST(MatmulFormChoice, StreamsForFewRowsAndTilesForMany) {
  EXPECT_EQ(ChooseCudaMatmulForm(1, 150000), CudaMatmulForm::kStream);
  EXPECT_EQ(ChooseCudaMatmulForm(64, 960), CudaMatmulForm::kStream);
  EXPECT_EQ(ChooseCudaMatmulForm(128, 4096), CudaMatmulForm::kTile64);
  EXPECT_EQ(ChooseCudaMatmulForm(2048, 4096), CudaMatmulForm::kTile128);
}

// One scratch memory for all matrices of a device, as large as the widest needs, freed with the last of them.
TEST(CudaPackTest, MatricesShareTheirScratchMemory) {
  const std::unique_ptr<Device> device = CreateTestDevice();
  const auto pack = [&](DType dtype, int64_t k) {
    std::vector<float> values(static_cast<size_t>(8 * k));
    absl::StatusOr<PackedMatrix> packed =
        PackedMatrix::Pack(TensorView(values.data(), dtype, {8, k}), *device);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  };
  {
    const PackedMatrix f32 = pack(DType::kF32, 61);
    EXPECT_EQ(f32.bytes(), 8 * 64 * 4);
    EXPECT_EQ(device->allocated_bytes(), f32.bytes());
    const PackedMatrix narrow = pack(DType::kBF16, 61);
    EXPECT_EQ(narrow.bytes(), 8 * 64 * 2);
    const DeviceBuffer& rows = narrow.cuda_product()->memory->rows;
    EXPECT_EQ(rows.bytes(), 64 * 2 * matmul::kCudaScratchRows);
    const TestWeight int8_values(DType::kI8, 8, 100, 1);
    const PackedMatrix int8 = int8_values.Pack(*device);
    EXPECT_EQ(int8.bytes(), 8 * 112 + 32 * 4);
    EXPECT_EQ(int8.cuda_product()->memory, narrow.cuda_product()->memory);
    EXPECT_EQ(rows.bytes(), 104 * 2 * matmul::kCudaScratchRows);
    const PackedMatrix wide = pack(DType::kBF16, 200);
    const PackedMatrix other = pack(DType::kBF16, 5);
    EXPECT_EQ(narrow.cuda_product()->memory, wide.cuda_product()->memory);
    EXPECT_EQ(narrow.cuda_product()->memory, other.cuda_product()->memory);
    EXPECT_EQ(rows.bytes(), 200 * 2 * matmul::kCudaScratchRows);
    EXPECT_EQ(device->allocated_bytes(),
              f32.bytes() + narrow.bytes() + int8.bytes() + wide.bytes() + other.bytes() + rows.bytes());
  }
  EXPECT_EQ(device->allocated_bytes(), 0);
}

}  // namespace
}  // namespace weir
