#include "runtime/ops/skip/skip.h"

namespace weir {

void SkipReference(const SkipArgs& args, double* y) {
  const int64_t columns = args.x.row_size();
  const int64_t head_dim = columns / args.d.dim(0);
  for (int64_t t = 0; t < args.x.num_rows(); ++t)
    for (int64_t c = 0; c < columns; ++c)
      y[t * columns + c] += static_cast<double>(args.d.data<float>()[c / head_dim]) * args.x.row<float>(t)[c];
}

}  // namespace weir
