// From views to pointers: the host half of the CUDA column.
#include "runtime/ops/attention/attention_cuda.h"

#include <algorithm>

#include "runtime/ops/attention/attention.h"

namespace weir {
namespace {

CudaKvType TypeOf(const PagedKv& kv) {
  switch (kv.keys.dtype()) {
    case DType::kF16:
      return CudaKvType::kF16;
    case DType::kBF16:
      return CudaKvType::kBF16;
    default:
      WEIR_CHECK(kv.keys.dtype() == DType::kF32);
      return CudaKvType::kF32;
  }
}

CudaPagedKv Pool(const PagedKv& kv) {
  WEIR_CHECK(kv.keys.dtype() == kv.values.dtype());
  WEIR_CHECK(kv.keys.dim(3) == kKvBlockTokens && kv.values.dim(2) == kKvBlockTokens);
  WEIR_CHECK(kv.values.dim(1) == kv.keys.dim(1) && kv.values.dim(3) == kv.keys.dim(2));
  CudaPagedKv pool;
  pool.type = TypeOf(kv);
  pool.keys = kv.keys.raw();
  pool.values = kv.values.raw();
  pool.key_stride = kv.keys.row_stride();
  pool.value_stride = kv.values.row_stride();
  pool.num_kv_heads = static_cast<int>(kv.keys.dim(1));
  pool.head_dim = static_cast<int>(kv.keys.dim(2));
  return pool;
}

CudaPagedBatch Batch(const RaggedBatch& batch) {
  CudaPagedBatch b;
  b.cu_seqlens = batch.cu_seqlens.data<int32_t>();
  b.positions = batch.positions.data<int64_t>();
  b.block_tables = batch.block_tables.data<int32_t>();
  b.table_stride = batch.block_tables.row_stride();
  b.num_tokens = batch.num_tokens;
  b.num_seqs = batch.num_seqs;
  return b;
}

}  // namespace

void KvWriteCuda(const KvWriteArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  if (args.batch.num_tokens == 0) return;
  CudaKvWrite w;
  w.batch = Batch(args.batch);
  w.kv = Pool(args.kv);
  WEIR_CHECK(args.k.row_size() == int64_t{w.kv.num_kv_heads} * w.kv.head_dim);
  WEIR_CHECK(args.v.row_size() == args.k.row_size());
  w.k = args.k.data<float>();
  w.v = args.v.data<float>();
  w.k_stride = args.k.row_stride();
  w.v_stride = args.v.row_stride();
  LaunchCudaKvWrite(w, static_cast<cudaStream_t>(stream.native()));
}

void AttentionCuda(const AttentionArgs& args, Stream& stream) {
  WEIR_CHECK(stream.backend() == Backend::kCuda);
  if (args.batch.num_tokens == 0) return;
  CudaAttention a;
  a.batch = Batch(args.batch);
  a.kv = Pool(args.kv);
  WEIR_CHECK(a.kv.head_dim <= kMaxCudaHeadDim);
  WEIR_CHECK(a.kv.num_kv_heads > 0 && args.num_heads % a.kv.num_kv_heads == 0);
  WEIR_CHECK(args.q.row_size() == int64_t{args.num_heads} * a.kv.head_dim);
  WEIR_CHECK(args.o.row_size() == args.q.row_size());
  a.q = args.q.data<float>();
  a.o = args.o.data<float>();
  a.scratch = args.scratch.data<float>();
  a.q_stride = args.q.row_stride();
  a.o_stride = args.o.row_stride();
  a.scratch_floats = args.scratch.num_elements();
  a.max_positions = args.batch.block_tables.dim(1) * kKvBlockTokens;
  if (args.batch.max_positions > 0) a.max_positions = std::min(a.max_positions, args.batch.max_positions);
  a.max_seq_tokens = args.batch.max_seq_tokens;
  a.num_heads = args.num_heads;
  a.scale = args.scale;
  LaunchCudaAttention(a, static_cast<cudaStream_t>(stream.native()));
}

}  // namespace weir
