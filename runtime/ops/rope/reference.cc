#include <cmath>
#include <complex>

#include "runtime/ops/rope/rope.h"

namespace weir {

// Each pair is a complex number turned by exp(i · position · inv_freq).
void RopeReference(const RopeArgs& args, double* y) {
  const int64_t width = args.x.dim(1);
  const int64_t head_dim = width / args.num_heads;
  for (int n = 0; n < args.batch.num_seqs; ++n) {
    const int32_t begin = args.batch.cu_seqlens.data<int32_t>()[n];
    const int32_t end = args.batch.cu_seqlens.data<int32_t>()[n + 1];
    for (int32_t t = begin; t < end; ++t) {
      const auto position = static_cast<double>(args.batch.positions.data<int64_t>()[n] + t - begin);
      for (int64_t h = 0; h < args.num_heads; ++h) {
        for (int64_t i = 0; i < head_dim / 2; ++i) {
          const int64_t first = h * head_dim + i;
          const int64_t second = first + head_dim / 2;
          const std::complex<double> pair(args.x.row<float>(t)[first], args.x.row<float>(t)[second]);
          const std::complex<double> turned =
              pair * std::polar(1.0, position * args.inv_freq.data<float>()[i]);
          y[t * width + first] = turned.real();
          y[t * width + second] = turned.imag();
        }
      }
    }
  }
}

}  // namespace weir
