#include <cmath>

#include "runtime/ops/rms_norm/rms_norm.h"

namespace weir {

void RmsNormReference(const RmsNormArgs& args, double* y) {
  const int64_t width = args.width();
  const int64_t columns = args.x.row_size();
  for (int64_t t = 0; t < args.x.num_rows(); ++t) {
    const auto gate = [&](int64_t c) {
      if (args.gate.empty()) return 1.0;
      const double value = args.gate.row<float>(t)[c];
      return value / (1.0 + std::exp(-value));
    };
    const auto x = [&](int64_t c) { return args.x.row<float>(t)[c] * (args.gate_first ? gate(c) : 1.0); };
    for (int64_t group = 0; group < columns; group += width) {
      double mean = 0.0;
      for (int64_t c = group; c < group + width; ++c) mean += x(c) * x(c) / static_cast<double>(width);
      for (int64_t c = group; c < group + width; ++c) {
        const double weight = args.weight.data<float>()[c % args.weight.dim(0)];
        y[t * columns + c] = x(c) / std::sqrt(mean + args.eps) * weight * (args.gate_first ? 1.0 : gate(c));
      }
    }
  }
}

}  // namespace weir
