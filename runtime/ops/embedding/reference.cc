#include "runtime/ops/embedding/embedding.h"

namespace weir {

void GatherRowsReference(const GatherRowsArgs& args, double* y) {
  const int64_t width = args.table.dim(1);
  for (int64_t i = 0; i < args.index.dim(0) * width; ++i) {
    const int64_t row = args.index.data<int32_t>()[i / width];
    const int64_t column = i % width;
    y[i] = args.table.dtype() == DType::kBF16
               ? static_cast<double>(args.table.row<BF16>(row)[column].ToFloat())
               : static_cast<double>(args.table.row<float>(row)[column]);
  }
}

}  // namespace weir
