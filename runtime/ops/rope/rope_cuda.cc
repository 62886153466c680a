// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/rope/rope_cuda.h"

#include "runtime/ops/rope/rope.h"

namespace weir {

void RopeCuda(const RopeArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const int64_t half = args.inv_freq.num_elements();
  WEIR_CHECK(args.num_heads > 0 && args.x.row_size() == 2 * half * args.num_heads);
  CudaRope r;
  r.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  r.positions = args.batch.positions.data<int64_t>();
  r.inv_freq = args.inv_freq.data<float>();
  r.x = args.x.data<float>();
  r.x_stride = args.x.row_stride();
  r.num_seqs = args.batch.num_seqs;
  r.num_tokens = args.batch.num_tokens;
  r.num_heads = args.num_heads;
  r.half = static_cast<int>(half);
  LaunchCudaRope(r, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
