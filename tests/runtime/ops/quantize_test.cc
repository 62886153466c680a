#include "runtime/ops/matmul/quantize.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/ops/matmul_case.h"

namespace weir {
namespace {

struct Quantized {
  Quantized(const TensorView& weight)
      : values(static_cast<size_t>(weight.num_elements())), scales(static_cast<size_t>(weight.dim(0))) {
    QuantizeRows(weight, values, scales);
  }
  std::vector<int8_t> values;
  std::vector<float> scales;
};

TEST(QuantizeRows, EveryValueIsTheNearestOneAndTheLargestIs127) {
  constexpr int64_t kRows = 7, kColumns = 33;
  Matrix weight = Matrix::Random(kRows, kColumns, 1);
  const Quantized q(weight.View());
  for (int64_t r = 0; r < kRows; ++r) {
    int largest = 0;
    for (int64_t c = 0; c < kColumns; ++c) {
      const int value = q.values[static_cast<size_t>(r * kColumns + c)];
      const float scale = q.scales[static_cast<size_t>(r)];
      EXPECT_LE(std::fabs(weight.at(r, c) - scale * static_cast<float>(value)), scale * 0.5001f)
          << r << " " << c;
      largest = std::max(largest, std::abs(value));
    }
    EXPECT_EQ(largest, 127) << r;
  }
}

TEST(QuantizeRows, HalvesAreTakenAsTheNumbersThatTheyAre) {
  std::vector<float> wide;
  std::vector<BF16> bf16;
  std::vector<F16> f16;
  for (int i = 0; i < 24; ++i) {
    const float value = std::ldexp(static_cast<float>(i * 5 % 23 - 11), -4);  // exact in all three
    wide.push_back(value);
    bf16.push_back(BF16::FromFloat(value));
    f16.push_back(F16::FromFloat(value));
  }
  const Quantized want(TensorView(wide.data(), DType::kF32, {3, 8}));
  for (const TensorView& view :
       {TensorView(bf16.data(), DType::kBF16, {3, 8}), TensorView(f16.data(), DType::kF16, {3, 8})}) {
    const Quantized got(view);
    EXPECT_EQ(got.values, want.values);
    EXPECT_EQ(got.scales, want.scales);
  }
}

TEST(QuantizeRows, TiesGoToEvenAndSignsAreKept) {
  std::vector<float> row = {127, 0.5f, 1.5f, -0.5f, -2.5f, -127};
  const Quantized q(TensorView(row.data(), DType::kF32, {1, 6}));
  EXPECT_EQ(q.scales[0], 1.0f);
  EXPECT_EQ(q.values, (std::vector<int8_t>{127, 0, 2, 0, -2, -127}));
}

TEST(QuantizeRows, RowsOfNothingAndRowsAtTheEndsOfTheRange) {
  const float largest = std::numeric_limits<float>::max(),
              denormal = std::numeric_limits<float>::denorm_min();
  std::vector<float> rows = {0, -0.0f, denormal, -denormal, largest, -largest, 1e-36f, 1e-36f};
  const Quantized q(TensorView(rows.data(), DType::kF32, {4, 2}));
  EXPECT_EQ(q.scales[0], 0.0f);
  EXPECT_EQ(q.scales[1], 0.0f);
  EXPECT_EQ(q.scales[2], largest / 127);
  EXPECT_EQ(q.scales[3], 0.0f) << "a scale would be no normal number";
  EXPECT_EQ(q.values, (std::vector<int8_t>{0, 0, 0, 0, 127, -127, 0, 0}));
}

}  // namespace
}  // namespace weir
