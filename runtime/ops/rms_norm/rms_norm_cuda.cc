// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/rms_norm/rms_norm_cuda.h"

#include "runtime/ops/rms_norm/rms_norm.h"

namespace weir {

void RmsNormCuda(const RmsNormArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const int64_t width = args.width();
  const int64_t columns = args.x.row_size();
  WEIR_CHECK(columns % width == 0 && (args.weight.dim(0) == width || args.weight.dim(0) == columns));
  CudaRmsNorm n;
  n.x = args.x.data<float>();
  n.weight = args.weight.data<float>();
  n.gate = args.gate.empty() ? nullptr : args.gate.data<float>();
  n.y = args.y.data<float>();
  n.x_stride = args.x.row_stride();
  n.gate_stride = args.gate.empty() ? 0 : args.gate.row_stride();
  n.y_stride = args.y.row_stride();
  n.rows = args.x.num_rows();
  n.groups = static_cast<int>(columns / width);
  n.width = static_cast<int>(width);
  n.weight_group = args.weight.dim(0) == width ? 0 : n.width;
  n.eps = args.eps;
  n.gate_first = args.gate_first;
  LaunchCudaRmsNorm(n, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
