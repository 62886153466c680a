// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/short_conv/short_conv_cuda.h"

#include "runtime/ops/short_conv/short_conv.h"

namespace weir {

void ShortConvCuda(const ShortConvArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  CudaShortConv c;
  c.channels = static_cast<int>(args.weight.dim(1));
  c.width = static_cast<int>(args.weight.dim(0));
  WEIR_CHECK(c.width >= 1 && c.width <= kMaxShortConvWidth && args.x.row_size() == c.channels);
  c.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  c.slots = args.batch.slots.data<int32_t>();
  c.x = args.x.data<float>();
  c.weight = args.weight.data<float>();
  c.bias = args.bias.empty() ? nullptr : args.bias.data<float>();
  c.y = args.y.data<float>();
  c.x_stride = args.x.row_stride();
  c.weight_stride = args.weight.row_stride();
  c.y_stride = args.y.row_stride();
  if (c.width > 1) {
    c.window = args.window.data<float>();
    c.window_stride = args.window.row_stride();
  }
  c.num_seqs = args.batch.num_seqs;
  c.num_tokens = args.batch.num_tokens;
  c.max_seq_tokens = args.batch.max_seq_tokens;
  c.silu = args.silu;
  LaunchCudaShortConv(c, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
