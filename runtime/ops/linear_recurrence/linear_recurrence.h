// The linear recurrence with a decay: causal linear attention (Katharopoulos et al. 2020), Performer's
// running stabiliser, RetNet's constant per head (Sun et al. 2023), and Mamba-2's scalar per head and token
// (Dao & Gu 2024):
//   S ← a S + φ(k) vᵀ,  z ← a z + φ(k),  o = φ(q)ᵀ S / (φ(q)ᵀ z + eps)  or, not normalised,  φ(q)ᵀ S · scale
// Feature maps are applied before; this op sees φ(q), φ(k) and log a. What decays by a vector (GLA) or reads
// before it writes (the delta rule) is another recurrence over the same state and the same batch: another op
// beside this one.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

// The state has one f32 level, or two, and then its value is outer + inner: sums that do not decay need both
// to take in ten million tokens. A token at absolute position p > 0 with p % kFoldTokens == 0 first moves
// inner into outer. Tokens of a run that fill a whole chunk [c · kChunkTokens, (c + 1) · kChunkTokens) may be
// computed as matrix products; all others go one by one, so results depend on how a sequence is cut into
// whole chunks, and on nothing else.
struct LinearRecurrenceArgs {
  RaggedBatch batch;
  TensorView q;  // f32 [num_tokens, num_k_heads * queries * state_dim], φ applied; queries = num_heads /
                 // num_kv_heads
  TensorView k;  // f32 [num_tokens, num_k_heads * state_dim], φ applied
  TensorView v;  // f32 [num_tokens, num_kv_heads * head_dim]
  TensorView log_decay;  // f32 ≤ 0: [num_tokens, num_kv_heads], or [1, num_kv_heads] for all tokens, or
                         // empty: a = 1. With two levels meant for values that are nearly always 0
  TensorView s_outer;    // f32 [slots, num_kv_heads, state_dim, head_dim]; empty: one level
  TensorView s_inner;    // f32 [slots, num_kv_heads, state_dim, head_dim]
  TensorView z_outer;    // f32 [slots, num_kv_heads, state_dim]; empty when not normalised or of one level
  TensorView z_inner;    // f32 [slots, num_kv_heads, state_dim]; empty when not normalised
  TensorView o;          // f32 [num_tokens, num_heads * head_dim]
  int num_heads = 0;     // a multiple of num_kv_heads; output h reads state h / queries
  int num_kv_heads = 0;  // states of a layer
  int num_k_heads = 0;   // divides num_kv_heads: as many states in a row share q and k; 0: each has its own
  float scale = 1.0f;    // multiplies o where it is not normalised
  float eps = 1e-10f;
};

// The least log_decay that is told from any lower one: e to it is 0 in f32.
inline constexpr float kMinLogDecay = -200.0f;

void LinearRecurrenceCpu(const LinearRecurrenceArgs& args, Stream& stream);
// The CUDA column does whole chunks as products of numbers in two bf16 parts, which hold 17 bits or more of
// their 24: Nmse of outputs and state stays below this. Single tokens are computed in f32.
inline constexpr double kCudaChunkNmse = 1e-10;
WEIR_CUDA_COLUMN void LinearRecurrenceCuda(const LinearRecurrenceArgs& args, Stream& stream);

// One token after another in double precision, one level. s: [slots, num_kv_heads, state_dim, head_dim] and
// z: [slots, num_kv_heads, state_dim], both in and out; o: [num_tokens, num_heads * head_dim].
void LinearRecurrenceReference(const LinearRecurrenceArgs& args, double* s, double* z, double* o);

inline constexpr int64_t kMaxCudaRecurrenceDim = 4096;  // state_dim of the CUDA column

inline constexpr Kernel<LinearRecurrenceArgs> kLinearRecurrence{"linear_recurrence", LinearRecurrenceCpu,
                                                                LinearRecurrenceCuda};

}  // namespace weir
