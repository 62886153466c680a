// Mamba-2's inputs to the linear recurrence (Dao & Gu 2024): the step size Δ of each head and token, what the
// state decays by during it, and the input times it:
//   Δ = clamp(softplus(dt + bias), min_dt, max_dt),  log a = Δ A,  v = Δ x
#pragma once

#include <limits>

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct DiscretizeArgs {
  TensorView dt;         // f32 [num_tokens, num_heads], as projected
  TensorView bias;       // f32 [num_heads]
  TensorView a;          // f32 [num_heads], negative: A = -exp(A_log)
  TensorView x;          // f32 [num_tokens, num_heads * head_dim]
  TensorView log_decay;  // f32 [num_tokens, num_heads]; not dt
  TensorView v;          // f32 [num_tokens, num_heads * head_dim]; may be x itself
  float min_dt = 0.0f;
  float max_dt = std::numeric_limits<float>::infinity();
};

void DiscretizeCpu(const DiscretizeArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void DiscretizeCuda(const DiscretizeArgs& args, Stream& stream);
// log_decay: dense [num_tokens, num_heads]; v: dense [num_tokens, num_heads * head_dim].
void DiscretizeReference(const DiscretizeArgs& args, double* log_decay, double* v);

inline constexpr Kernel<DiscretizeArgs> kDiscretize{"discretize", DiscretizeCpu, DiscretizeCuda};

}  // namespace weir
