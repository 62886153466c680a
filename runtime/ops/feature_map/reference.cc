#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/ops/feature_map/feature_map.h"

namespace weir {

void EluPlusOneReference(const EluPlusOneArgs& args, double* y) {
  for (int64_t t = 0; t < args.x.num_rows(); ++t) {
    for (int64_t c = 0; c < args.x.dim(1); ++c) {
      const double x = args.x.row<float>(t)[c];
      *y++ = (x > 0.0 ? x : std::expm1(x)) + 1.0;
    }
  }
}

void FavorReference(const FavorArgs& args, double* y, double* maximum, double* log_decay) {
  const int64_t heads = args.num_heads;
  const int64_t head_dim = args.features.dim(0);
  const int64_t num_features = args.features.dim(1);
  const double root = std::pow(static_cast<double>(head_dim), -0.25);
  std::vector<double> e(num_features);
  for (int n = 0; n < args.batch.num_seqs; ++n) {
    const int32_t first = args.batch.cu_seqlens.data<int32_t>()[n];
    const int64_t slot = args.batch.slots.data<int32_t>()[n];
    for (int32_t t = first; t < args.batch.cu_seqlens.data<int32_t>()[n + 1]; ++t) {
      const bool begins = args.batch.positions.data<int64_t>()[n] + t - first == 0;
      for (int64_t h = 0; h < heads; ++h) {
        const float* x = args.x.row<float>(t) + h * head_dim;
        double half_square = 0.0;
        for (int64_t j = 0; j < head_dim; ++j) half_square += x[j] * root * x[j] * root / 2.0;
        for (int64_t i = 0; i < num_features; ++i) {
          e[i] = -half_square;
          for (int64_t j = 0; j < head_dim; ++j) e[i] += args.features.row<float>(j)[i] * root * x[j];
        }
        double m = *std::max_element(e.begin(), e.end());
        if (!args.maximum.empty()) {
          double& running = maximum[slot * heads + h];
          if (!begins) m = std::max(m, running);
          log_decay[t * heads + h] = begins ? 0.0 : running - m;
          running = m;
        }
        for (int64_t i = 0; i < num_features; ++i)
          y[(t * heads + h) * num_features + i] =
              std::exp(e[i] - m) / std::sqrt(static_cast<double>(num_features));
      }
    }
  }
}

}  // namespace weir
