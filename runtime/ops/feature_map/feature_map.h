// Feature maps of linear attention: φ(x) = elu(x) + 1 (Katharopoulos et al. 2020), and FAVOR+'s positive
// random features (Choromanski et al. 2021), whose φ(q)ᵀφ(k) approximates the softmax kernel exp(qᵀk / √d).
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct EluPlusOneArgs {
  TensorView x;  // f32 [num_tokens, channels]
  TensorView y;  // like x; may be x itself
};

void EluPlusOneCpu(const EluPlusOneArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void EluPlusOneCuda(const EluPlusOneArgs& args, Stream& stream);
void EluPlusOneReference(const EluPlusOneArgs& args, double* y);

inline constexpr Kernel<EluPlusOneArgs> kEluPlusOne{"elu_plus_one", EluPlusOneCpu, EluPlusOneCuda};

// x̂ = x / d^(1/4),  e_i = w_iᵀx̂ − |x̂|² / 2,  φ(x)_i = exp(e_i − m) / √num_features.
// m keeps φ in range and cancels out of the normalised output. For a query it is its own largest e. For keys
// it is the largest e of all tokens so far, and the sums over earlier keys must be multiplied by
// exp(log_decay) when it rises; a maximum over the whole prompt, as elsewhere, would look into the future.
struct FavorArgs {
  RaggedBatch batch;
  TensorView x;         // f32 [num_tokens, num_heads * head_dim]
  TensorView features;  // f32 [head_dim, num_features]: w_i are the columns, the same for every head
  int num_heads = 0;
  TensorView y;  // f32 [num_tokens, num_heads * num_features]
  TensorView
      maximum;  // keys: f32 [slots, num_heads], in and out; what it held before position 0 does not count
  TensorView log_decay;  // keys: f32 [num_tokens, num_heads], ≤ 0; both empty for queries
};

// Tokens of a run in order, each by itself: bit-identical however a sequence is cut.
void FavorCpu(const FavorArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void FavorCuda(const FavorArgs& args, Stream& stream);
// All dense; `maximum` [slots, num_heads] in and out.
void FavorReference(const FavorArgs& args, double* y, double* maximum, double* log_decay);

inline constexpr Kernel<FavorArgs> kFavor{"favor", FavorCpu, FavorCuda};

}  // namespace weir
