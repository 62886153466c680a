// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/swiglu/swiglu_cuda.h"

#include "runtime/ops/swiglu/swiglu.h"

namespace weir {

void SwiGluCuda(const SwiGluArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  CudaSwiGlu s;
  s.gate = args.gate.data<float>();
  s.up = args.up.data<float>();
  s.y = args.y.data<float>();
  s.gate_stride = args.gate.row_stride();
  s.up_stride = args.up.row_stride();
  s.y_stride = args.y.row_stride();
  LaunchCudaSwiGlu(s, args.gate.num_rows(), args.gate.row_size(), static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
