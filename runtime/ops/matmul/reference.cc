// The plain triple loop in double precision.
#include "runtime/ops/matmul/matmul.h"

namespace weir {

namespace {

double WeightAt(const TensorView& weight, int64_t row, int64_t i) {
  if (weight.dtype() == DType::kI8) return weight.row<int8_t>(row)[i];
  if (weight.dtype() == DType::kBF16) return static_cast<double>(weight.row<BF16>(row)[i].ToFloat());
  return static_cast<double>(weight.row<float>(row)[i]);
}

}  // namespace

void MatmulReference(const TensorView& x, const TensorView& weight, const TensorView& bias, double* y,
                     std::span<const float> scales) {
  const bool rounds = weight.dtype() != DType::kF32;
  const int64_t n = weight.dim(0);
  for (int64_t row = 0; row < x.dim(0); ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (int64_t i = 0; i < x.dim(1); ++i) {
        const float value = x.row<float>(row)[i];
        sum += static_cast<double>(rounds ? BF16::FromFloat(value).ToFloat() : value) *
               WeightAt(weight, column, i);
      }
      if (!scales.empty()) sum *= static_cast<double>(scales[static_cast<size_t>(column)]);
      if (!bias.empty()) sum += static_cast<double>(bias.data<float>()[column]);
      y[row * n + column] = sum;
    }
  }
}

}  // namespace weir
