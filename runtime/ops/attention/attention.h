// Causal softmax attention over a paged KV cache, exact, tiled, with an online softmax (Milakov & Gimelshein
// 2018; Dao et al. 2022): no n×n anywhere.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

// Tokens in one KV block, and the sequence piece of flash decoding in blocks: both fixed, so that the order
// of every sum depends on absolute position alone.
inline constexpr int kKvBlockTokens = 64;

// One layer's share of the KV pool. Block b holds positions [i · kKvBlockTokens, …) of the sequence whose
// table names b at index i.
struct PagedKv {
  TensorView keys;    // f32, f16 or bf16 [num_blocks, num_kv_heads, kKvBlockTokens, head_dim]
  TensorView values;  // same
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
// max_positions.
int64_t AttentionScratchElements(int max_tokens, int64_t max_positions, int num_heads, int head_dim,
                                 int num_threads);

void KvWriteCpu(const KvWriteArgs& args, Stream& stream);
void AttentionCpu(const AttentionArgs& args, Stream& stream);
// Full softmax in double precision on the stored (rounded) keys and values.
void AttentionReference(const AttentionArgs& args, double* o);

inline constexpr Kernel<KvWriteArgs> kKvWrite{"kv_write", KvWriteCpu, nullptr};
inline constexpr Kernel<AttentionArgs> kAttention{"attention", AttentionCpu, nullptr};

}  // namespace weir
