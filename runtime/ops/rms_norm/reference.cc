#include <cmath>

#include "runtime/ops/rms_norm/rms_norm.h"

namespace weir {

void RmsNormReference(const RmsNormArgs& args, double* y) {
  const int64_t width = args.weight.num_elements();
  const int64_t columns = args.x.row_size();
  for (int64_t t = 0; t < args.x.num_rows(); ++t) {
    const float* x = args.x.row<float>(t);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t group = c / width * width;
      double mean = 0.0;
      for (int64_t j = 0; j < width; ++j)
        mean += static_cast<double>(x[group + j]) * x[group + j] / static_cast<double>(width);
      double value = x[c] / std::sqrt(mean + args.eps) * args.weight.data<float>()[c - group];
      if (!args.gate.empty()) {
        const double gate = args.gate.row<float>(t)[c];
        value *= gate / (1.0 + std::exp(-gate));
      }
      y[t * columns + c] = value;
    }
  }
}

}  // namespace weir
