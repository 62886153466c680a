#include "runtime/ops/matmul/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace weir {
namespace {

float ToFloat(float value) { return value; }
float ToFloat(BF16 value) { return value.ToFloat(); }
float ToFloat(F16 value) { return value.ToFloat(); }

float QuantizeRow(std::span<const float> row, int8_t* values) {
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::fabs(value));
  const float scale = largest / kInt8Max;
  if (scale < std::numeric_limits<float>::min()) {
    std::fill_n(values, row.size(), int8_t{0});
    return 0;
  }
  for (size_t i = 0; i < row.size(); ++i)
    values[i] =
        static_cast<int8_t>(std::clamp(std::nearbyint(row[i] / scale), -float{kInt8Max}, float{kInt8Max}));
  return scale;
}

template <class T>
void QuantizeAs(const TensorView& weight, std::span<int8_t> values, std::span<float> scales) {
  const int64_t k = weight.dim(1);
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t n = 0; n < weight.dim(0); ++n) {
    const T* in = weight.row<T>(n);
    std::transform(in, in + k, row.begin(), [](T value) { return ToFloat(value); });
    scales[static_cast<size_t>(n)] = QuantizeRow(row, values.data() + n * k);
  }
}

}  // namespace

void QuantizeRows(const TensorView& weight, std::span<int8_t> values, std::span<float> scales) {
  WEIR_CHECK(weight.rank() == 2 && std::ssize(values) == weight.num_elements());
  WEIR_CHECK(std::ssize(scales) == weight.dim(0));
  switch (weight.dtype()) {
    case DType::kF32:
      return QuantizeAs<float>(weight, values, scales);
    case DType::kF16:
      return QuantizeAs<F16>(weight, values, scales);
    case DType::kBF16:
      return QuantizeAs<BF16>(weight, values, scales);
    default:
      WEIR_CHECK(false && "a weight of floats");
  }
}

}  // namespace weir
