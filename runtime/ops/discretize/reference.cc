#include <algorithm>
#include <cmath>

#include "runtime/ops/discretize/discretize.h"

namespace weir {

void DiscretizeReference(const DiscretizeArgs& args, double* log_decay, double* v) {
  const int64_t heads = args.bias.dim(0);
  const int64_t head_dim = args.x.row_size() / heads;
  for (int64_t t = 0; t < args.x.num_rows(); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const double raw = static_cast<double>(args.dt.row<float>(t)[h]) + args.bias.data<float>()[h];
      const double softplus = raw > 30.0 ? raw : std::log1p(std::exp(raw));
      const double delta =
          std::clamp(softplus, static_cast<double>(args.min_dt), static_cast<double>(args.max_dt));
      log_decay[t * heads + h] = delta * args.a.data<float>()[h];
      for (int64_t j = 0; j < head_dim; ++j)
        v[(t * heads + h) * head_dim + j] = delta * args.x.row<float>(t)[h * head_dim + j];
    }
  }
}

}  // namespace weir
