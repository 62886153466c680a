#include <cmath>

#include "runtime/ops/selective_scan/selective_scan.h"

namespace weir {

void SelectiveScanReference(const SelectiveScanArgs& args, double* state, double* y) {
  const int64_t state_dim = args.a.dim(0);
  const int64_t channels = args.a.dim(1);
  for (int run = 0; run < args.batch.num_seqs; ++run) {
    double* own = state + args.batch.slots.data<int32_t>()[run] * state_dim * channels;
    for (int32_t t = args.batch.cu_seqlens.data<int32_t>()[run];
         t < args.batch.cu_seqlens.data<int32_t>()[run + 1]; ++t) {
      for (int64_t i = 0; i < channels; ++i) {
        const double u = args.u.row<float>(t)[i];
        const double raw =
            args.dt.row<float>(t)[i] + (args.dt_bias.empty() ? 0.0 : args.dt_bias.data<float>()[i]);
        const double delta = raw > 30.0 ? raw : std::log1p(std::exp(raw));
        double sum = args.d.data<float>()[i] * u;
        for (int64_t n = 0; n < state_dim; ++n) {
          double& h = own[n * channels + i];
          h = std::exp(delta * args.a.row<float>(n)[i]) * h + delta * args.b.row<float>(t)[n] * u;
          sum += args.c.row<float>(t)[n] * h;
        }
        const double z = args.z.empty() ? 0.0 : args.z.row<float>(t)[i];
        y[t * channels + i] = args.z.empty() ? sum : sum * z / (1.0 + std::exp(-z));
      }
    }
  }
}

}  // namespace weir
