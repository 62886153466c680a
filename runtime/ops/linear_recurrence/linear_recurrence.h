// Causal linear attention as a recurrence (Katharopoulos et al. 2020):
//   S ← S + φ(k) vᵀ,  z ← z + φ(k),  o = φ(q)ᵀ S / (φ(q)ᵀ z + eps)
// Feature maps are applied before; this op sees φ(q) and φ(k).
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

// The state has two f32 levels, and its value is outer + inner. A token at absolute position p > 0 with
// p % kFoldTokens == 0 first moves inner into outer. Tokens of a run that fill a whole chunk
// [c · kChunkTokens, (c + 1) · kChunkTokens) may be computed as matrix products; all others go one by one, so
// results depend on how a sequence is cut into whole chunks, and on nothing else.
struct LinearRecurrenceArgs {
  RaggedBatch batch;
  TensorView q;        // f32 [num_tokens, num_heads * state_dim], φ applied
  TensorView k;        // f32 [num_tokens, num_kv_heads * state_dim], φ applied
  TensorView v;        // f32 [num_tokens, num_kv_heads * head_dim]
  TensorView s_outer;  // f32 [slots, num_kv_heads, state_dim, head_dim]
  TensorView s_inner;  // f32 [slots, num_kv_heads, state_dim, head_dim]
  TensorView z_outer;  // f32 [slots, num_kv_heads, state_dim]; empty when not normalised
  TensorView z_inner;  // f32 [slots, num_kv_heads, state_dim]; empty when not normalised
  TensorView o;        // f32 [num_tokens, num_heads * head_dim]
  int num_heads = 0;   // a multiple of num_kv_heads; query head h reads state h / (num_heads / num_kv_heads)
  int num_kv_heads = 0;
  float scale = 1.0f;  // multiplies o where it is not normalised
  float eps = 1e-10f;
};

void LinearRecurrenceCpu(const LinearRecurrenceArgs& args, Stream& stream);
void LinearRecurrenceCuda(const LinearRecurrenceArgs& args, Stream& stream);

// One token after another in double precision, one level. s: [slots, num_kv_heads, state_dim, head_dim] and
// z: [slots, num_kv_heads, state_dim], both in and out; o: [num_tokens, num_heads * head_dim].
void LinearRecurrenceReference(const LinearRecurrenceArgs& args, double* s, double* z, double* o);

inline constexpr Kernel<LinearRecurrenceArgs> kLinearRecurrence{"linear_recurrence", LinearRecurrenceCpu,
                                                                WEIR_CUDA_COLUMN(LinearRecurrenceCuda)};

}  // namespace weir
