#include <cmath>

#include "runtime/ops/swiglu/swiglu.h"

namespace weir {

void SwiGluReference(const SwiGluArgs& args, double* y) {
  for (int64_t t = 0; t < args.gate.num_rows(); ++t) {
    for (int64_t c = 0; c < args.gate.dim(1); ++c) {
      const double gate = args.gate.row<float>(t)[c];
      *y++ = gate / (1.0 + std::exp(-gate)) * args.up.row<float>(t)[c];
    }
  }
}

}  // namespace weir
