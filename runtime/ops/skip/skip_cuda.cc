// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/skip/skip_cuda.h"

#include "runtime/ops/skip/skip.h"

namespace weir {

void SkipCuda(const SkipArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const int64_t heads = args.d.dim(0);
  const int64_t columns = args.x.row_size();
  WEIR_CHECK(columns % heads == 0 && args.y.row_size() == columns);
  CudaSkip s;
  s.x = args.x.data<float>();
  s.d = args.d.data<float>();
  s.y = args.y.data<float>();
  s.x_stride = args.x.row_stride();
  s.y_stride = args.y.row_stride();
  s.head_dim = static_cast<int>(columns / heads);
  LaunchCudaSkip(s, args.x.num_rows(), columns, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
