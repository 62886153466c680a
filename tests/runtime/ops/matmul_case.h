// Matrices of the tests of matmul.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/quantize.h"

namespace weir {

inline constexpr int64_t kMatrixGap = 5;  // rows start at any float

// A matrix whose rows lie `gap` values apart in memory full of NaN, with as many before the first row and
// after the last: reading beyond a row spoils the result, writing beyond it is seen by RedZonesIntact. With a
// gap and a number of columns that are multiples of 4 every row is aligned to 16 bytes.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, int64_t gap = kMatrixGap)
      : rows_(rows),
        gap_(gap),
        stride_(columns + gap),
        data_(static_cast<size_t>(gap + rows * stride_), std::numeric_limits<float>::quiet_NaN()) {}

  static Matrix Random(int64_t rows, int64_t columns, uint32_t seed, int64_t gap = kMatrixGap) {
    Matrix matrix(rows, columns, gap);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) matrix.at(r, c) = normal(random);
    return matrix;
  }

  float* row(int64_t r) { return data_.data() + gap_ + r * stride_; }
  float& at(int64_t r, int64_t c) { return row(r)[c]; }
  TensorView View(int64_t first, int64_t count) {
    return TensorView(row(0), DType::kF32, {rows_, stride_}).Columns(0, stride_ - gap_).Rows(first, count);
  }
  TensorView View() { return View(0, rows_); }
  bool RedZonesIntact() {
    for (int64_t r = -1; r < rows_; ++r)
      for (int64_t c = 0; c < gap_; ++c)
        if (!std::isnan(row(r + 1)[c - gap_])) return false;
    return true;
  }

 private:
  int64_t rows_, gap_, stride_;
  std::vector<float> data_;
};

// A weight [n, k] of f32, bf16 or int8; rows of f32 are strided.
struct TestWeight {
  TestWeight(DType dtype, int64_t n, int64_t k, uint32_t seed)
      : values(Matrix::Random(n, k, seed)), view(values.View()) {
    if (dtype == DType::kF32) return;
    if (dtype == DType::kI8) {
      quantized.resize(static_cast<size_t>(n * k));
      scales.resize(static_cast<size_t>(n));
      QuantizeRows(view, quantized, scales);
      view = TensorView(quantized.data(), DType::kI8, {n, k});
      return;
    }
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < k; ++c) rounded.push_back(BF16::FromFloat(values.at(r, c)));
    view = TensorView(rounded.data(), DType::kBF16, {n, k});
  }
  TestWeight(const TestWeight&) = delete;
  // As it is multiplied.
  float At(int64_t r, int64_t c) const {
    if (view.dtype() == DType::kF32) return view.row<float>(r)[c];
    if (view.dtype() == DType::kBF16) return view.row<BF16>(r)[c].ToFloat();
    return scales[static_cast<size_t>(r)] * static_cast<float>(view.row<int8_t>(r)[c]);
  }
  PackedMatrix Pack(Device& device) const {
    absl::StatusOr<PackedMatrix> packed = view.dtype() == DType::kI8
                                              ? PackedMatrix::PackInt8(view, scales, device)
                                              : PackedMatrix::Pack(view, device);
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }
  Matrix values;
  std::vector<BF16> rounded;
  std::vector<int8_t> quantized;
  std::vector<float> scales;
  TensorView view;
};

}  // namespace weir
