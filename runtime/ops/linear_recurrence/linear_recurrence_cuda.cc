// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"

#include "runtime/ops/linear_recurrence/cuda_shared_bytes.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"

namespace weir {
namespace {

float* DataOf(const TensorView& view) { return view.empty() ? nullptr : view.data<float>(); }
int64_t StrideOf(const TensorView& view) { return view.empty() ? 0 : view.row_stride(); }

static_assert(kRecurrenceChunk == kChunkTokens && kFoldTokens % kChunkTokens == 0);

}  // namespace

CudaSharedBytes RecurrenceSharedBytes(int64_t state_dim, int64_t head_dim, int64_t queries, Device& device) {
  WEIR_CHECK(device.backend() == Backend::kCuda);
  CudaRecurrence shape;
  shape.state_dim = static_cast<int>(state_dim);
  shape.head_dim = static_cast<int>(head_dim);
  shape.queries = static_cast<int>(queries);
  static_cast<void>(device.stream().native());  // makes its GPU the current one
  int gpu = 0, available = 0;
  if (cudaGetDevice(&gpu) != cudaSuccess ||
      cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu) != cudaSuccess)
    static_cast<void>(cudaGetLastError());  // nothing fits then
  return {static_cast<int64_t>(CudaRecurrenceSharedBytes(shape)), available};
}

void LinearRecurrenceCuda(const LinearRecurrenceArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  WEIR_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  WEIR_CHECK(args.num_k_heads == 0 || args.num_kv_heads % args.num_k_heads == 0);
  WEIR_CHECK(args.z_inner.empty() || args.s_outer.empty() == args.z_outer.empty());
  static_assert(kMaxCudaRecurrenceDim == kMaxCudaStateDim);
  WEIR_CHECK(args.s_inner.dim(2) <= kMaxCudaStateDim);
  CudaRecurrence r;
  r.cu_seqlens = args.batch.cu_seqlens.data<int32_t>();
  r.slots = args.batch.slots.data<int32_t>();
  r.positions = args.batch.positions.data<int64_t>();
  r.q = DataOf(args.q);
  r.k = DataOf(args.k);
  r.v = DataOf(args.v);
  r.o = DataOf(args.o);
  r.log_decay = DataOf(args.log_decay);
  r.s_outer = DataOf(args.s_outer);
  r.s_inner = DataOf(args.s_inner);
  r.z_outer = args.z_inner.empty() ? nullptr : DataOf(args.z_outer);
  r.z_inner = DataOf(args.z_inner);
  r.q_stride = StrideOf(args.q);
  r.k_stride = StrideOf(args.k);
  r.v_stride = StrideOf(args.v);
  r.o_stride = StrideOf(args.o);
  if (!args.log_decay.empty() && args.log_decay.num_rows() > 1) r.decay_stride = args.log_decay.row_stride();
  r.s_outer_stride = StrideOf(args.s_outer);
  r.s_inner_stride = StrideOf(args.s_inner);
  r.z_outer_stride = StrideOf(args.z_outer);
  r.z_inner_stride = StrideOf(args.z_inner);
  r.num_kv_heads = args.num_kv_heads;
  r.state_dim = static_cast<int>(args.s_inner.dim(2));
  r.head_dim = static_cast<int>(args.s_inner.dim(3));
  r.queries = args.num_heads / args.num_kv_heads;
  r.states_of_k = args.num_k_heads == 0 ? 1 : args.num_kv_heads / args.num_k_heads;
  r.fold_tokens = kFoldTokens;
  r.min_log_decay = kMinLogDecay;
  r.scale = args.scale;
  r.eps = args.eps;
  LaunchCudaRecurrence(r, args.batch.num_seqs, args.batch.max_seq_tokens,
                       static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
