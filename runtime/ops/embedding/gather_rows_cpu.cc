#include <cstring>

#include "runtime/device/cpu_device.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/parallel.h"

namespace weir {

void GatherRowsCpu(const GatherRowsArgs& args, Stream& stream) {
  const int64_t width = args.table.row_size();
  const int32_t* index = args.index.data<int32_t>();
  ParallelRows(PoolOf(stream), args.index.num_elements(), width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      WEIR_CHECK(index[t] >= 0 && index[t] < args.table.num_rows());
      float* y = args.y.row<float>(t);
      if (args.table.dtype() == DType::kF32) {
        std::memcpy(y, args.table.row<float>(index[t]), static_cast<size_t>(width) * sizeof(float));
        continue;
      }
      const BF16* from = args.table.row<BF16>(index[t]);
      for (int64_t c = 0; c < width; ++c) y[c] = from[c].ToFloat();
    }
  });
}

}  // namespace weir
