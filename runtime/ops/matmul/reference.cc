// The plain triple loop in double precision.
#include "runtime/ops/matmul/matmul.h"

namespace weir {

void MatmulReference(const TensorView& x, const TensorView& weight, const TensorView& bias, double* y) {
  const bool bf16 = weight.dtype() == DType::kBF16;
  const int64_t n = weight.dim(0);
  for (int64_t row = 0; row < x.dim(0); ++row) {
    for (int64_t column = 0; column < n; ++column) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias.data<float>()[column]);
      for (int64_t i = 0; i < x.dim(1); ++i) {
        const float value = x.row<float>(row)[i];
        if (bf16)
          sum += static_cast<double>(BF16::FromFloat(value).ToFloat()) *
                 static_cast<double>(weight.row<BF16>(column)[i].ToFloat());
        else
          sum += static_cast<double>(value) * static_cast<double>(weight.row<float>(column)[i]);
      }
      y[row * n + column] = sum;
    }
  }
}

}  // namespace weir
