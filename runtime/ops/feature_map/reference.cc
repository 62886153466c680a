#include <cmath>

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

}  // namespace weir
