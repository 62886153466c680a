// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/discretize/discretize_cuda.h"

#include "runtime/ops/discretize/discretize.h"

namespace weir {

void DiscretizeCuda(const DiscretizeArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const int64_t heads = args.bias.dim(0);
  const int64_t columns = args.x.row_size();
  WEIR_CHECK(columns % heads == 0 && args.dt.row_size() == heads);
  CudaDiscretize d;
  d.dt = args.dt.data<float>();
  d.bias = args.bias.data<float>();
  d.a = args.a.data<float>();
  d.x = args.x.data<float>();
  d.log_decay = args.log_decay.data<float>();
  d.v = args.v.data<float>();
  d.dt_stride = args.dt.row_stride();
  d.x_stride = args.x.row_stride();
  d.log_decay_stride = args.log_decay.row_stride();
  d.v_stride = args.v.row_stride();
  d.head_dim = static_cast<int>(columns / heads);
  d.min_dt = args.min_dt;
  d.max_dt = args.max_dt;
  LaunchCudaDiscretize(d, args.x.num_rows(), columns, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
