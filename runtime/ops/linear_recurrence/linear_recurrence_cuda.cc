// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"

#include "runtime/ops/linear_recurrence/linear_recurrence.h"

namespace weir {

void LinearRecurrenceCuda(const LinearRecurrenceArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  // Not in this column yet: decay, one level, states that share q and k.
  WEIR_CHECK(args.log_decay.empty() && !args.s_outer.empty() && args.num_k_heads == 0);
  CudaRecurrence r;
  r.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  r.slots = args.batch.slots.data<int32_t>();
  r.positions = args.batch.positions.data<int64_t>();
  r.q = args.q.data<float>();
  r.k = args.k.data<float>();
  r.v = args.v.data<float>();
  r.o = args.o.data<float>();
  r.s_outer = args.s_outer.data<float>();
  r.s_inner = args.s_inner.data<float>();
  if (!args.z_inner.empty()) {
    r.z_outer = args.z_outer.data<float>();
    r.z_inner = args.z_inner.data<float>();
  }
  r.q_stride = args.q.row_stride();
  r.k_stride = args.k.row_stride();
  r.v_stride = args.v.row_stride();
  r.o_stride = args.o.row_stride();
  r.s_outer_stride = args.s_outer.row_stride();
  r.s_inner_stride = args.s_inner.row_stride();
  r.z_outer_stride = args.z_outer.row_stride();
  r.z_inner_stride = args.z_inner.row_stride();
  r.state_dim = static_cast<int>(args.s_inner.dim(2));
  r.head_dim = static_cast<int>(args.s_inner.dim(3));
  r.queries = args.num_heads / args.num_kv_heads;
  r.fold_tokens = kFoldTokens;
  r.scale = args.scale;
  r.eps = args.eps;
  LaunchCudaRecurrence(r, args.batch.num_seqs, args.num_kv_heads, args.batch.max_seq_tokens,
                       static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
