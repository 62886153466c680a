// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/selective_scan/selective_scan_cuda.h"

#include "runtime/ops/selective_scan/selective_scan.h"

namespace weir {
namespace {

float* DataOf(const TensorView& view) { return view.empty() ? nullptr : view.data<float>(); }
int64_t StrideOf(const TensorView& view) { return view.empty() ? 0 : view.row_stride(); }

}  // namespace

void SelectiveScanCuda(const SelectiveScanArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  const int64_t state_dim = args.a.dim(0);
  const int64_t channels = args.a.dim(1);
  WEIR_CHECK(state_dim >= 1 && state_dim <= kMaxScanStateDim);
  WEIR_CHECK(args.u.row_size() == channels && args.dt.row_size() == channels &&
             args.y.row_size() == channels && args.d.num_elements() == channels);
  WEIR_CHECK(args.b.row_size() == state_dim && args.c.row_size() == state_dim);
  WEIR_CHECK(args.state.dim(1) == state_dim && args.state.dim(2) == channels);
  CudaScan scan;
  scan.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  scan.slots = args.batch.slots.data<int32_t>();
  scan.u = DataOf(args.u);
  scan.dt = DataOf(args.dt);
  scan.dt_bias = DataOf(args.dt_bias);
  scan.a = DataOf(args.a);
  scan.b = DataOf(args.b);
  scan.c = DataOf(args.c);
  scan.d = DataOf(args.d);
  scan.z = DataOf(args.z);
  scan.state = DataOf(args.state);
  scan.y = DataOf(args.y);
  scan.u_stride = StrideOf(args.u);
  scan.dt_stride = StrideOf(args.dt);
  scan.a_stride = StrideOf(args.a);
  scan.b_stride = StrideOf(args.b);
  scan.c_stride = StrideOf(args.c);
  scan.z_stride = StrideOf(args.z);
  scan.state_stride = StrideOf(args.state);
  scan.y_stride = StrideOf(args.y);
  scan.state_dim = static_cast<int>(state_dim);
  scan.channels = static_cast<int>(channels);
  LaunchCudaScan(scan, args.batch.num_seqs, args.batch.max_seq_tokens,
                 static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
