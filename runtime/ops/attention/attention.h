// Causal softmax attention over a paged KV cache, exact, tiled, with an online softmax (Milakov & Gimelshein
// 2018; Dao et al. 2022): no n×n anywhere.
//
// What holds bit for bit on one machine: a token's output depends on its query and on the stored keys and
// values of positions 0..p alone. It is the same
//   - whatever else is in the batch, in whatever order, and whichever slots and blocks are used;
//   - whatever the number of threads;
//   - however the sequence was split into runs: prefill and decode of one position agree;
//   - whatever lies in the unwritten tail of a block or in later positions (NaN included).
// It differs between instruction sets (SSE, AVX2, AVX-512) and from CPU to GPU, within rounding.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

inline constexpr int kKvBlockTokens = 64;
// A row's sums are made per piece of this many positions, counted from position 0, and pieces are merged in
// order: fixed, so that the order of every sum depends on absolute position alone (Dao et al. 2023,
// flash decoding).
inline constexpr int kAttentionPieceTokens = 4 * kKvBlockTokens;

// One layer's share of the KV pool. Block b holds positions [i · kKvBlockTokens, …) of the sequence whose
// table names b at index i. Keys lie transposed within a block, so that one load brings a dimension of many
// keys and a score needs no sum across lanes.
struct PagedKv {
  TensorView keys;    // f32, f16 or bf16 [num_blocks, num_kv_heads, head_dim, kKvBlockTokens]
  TensorView values;  // same type [num_blocks, num_kv_heads, kKvBlockTokens, head_dim]
};

// Stores k and v of the batch at their positions.
struct KvWriteArgs {
  RaggedBatch batch;
  TensorView k;  // f32 [num_tokens, num_kv_heads * head_dim]
  TensorView v;  // f32 [num_tokens, num_kv_heads * head_dim]
  PagedKv kv;
};

// Query at position p attends to positions 0..p, all of them read from the pool (so KvWrite comes first).
// num_heads is a multiple of num_kv_heads (grouped-query attention).
struct AttentionArgs {
  RaggedBatch batch;
  TensorView q;  // f32 [num_tokens, num_heads * head_dim]
  PagedKv kv;
  TensorView o;        // f32 [num_tokens, num_heads * head_dim]
  TensorView scratch;  // f32 [AttentionScratchElements(...)]
  int num_heads = 0;
  float scale = 0.0f;  // usually head_dim^-0.5
};

// Scratch for any batch of up to `max_tokens` tokens at positions below `max_positions`: linear in
// max_positions (one partial sum per piece and head of the longest sequence), constant in max_tokens. More
// makes decode quicker on GPUs, where runs whose partial sums do not fit together wait for each other.
int64_t AttentionScratchElements(int max_tokens, int64_t max_positions, int num_heads, int head_dim,
                                 int num_threads);

void KvWriteCpu(const KvWriteArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void KvWriteCuda(const KvWriteArgs& args, Stream& stream);
void AttentionCpu(const AttentionArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void AttentionCuda(const AttentionArgs& args, Stream& stream);
// Full softmax in double precision on the stored (rounded) keys and values.
void AttentionReference(const AttentionArgs& args, double* o);

inline constexpr int64_t kMaxCudaHeadDim = 256;  // of the CUDA column

inline constexpr Kernel<KvWriteArgs> kKvWrite{"kv_write", KvWriteCpu, KvWriteCuda};
inline constexpr Kernel<AttentionArgs> kAttention{"attention", AttentionCpu, AttentionCuda};

}  // namespace weir
