// y = silu(gate) · up  (Shazeer 2020).
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct SwiGluArgs {
  TensorView gate;  // f32 [num_tokens, d_ff]
  TensorView up;    // f32 [num_tokens, d_ff]
  TensorView y;     // f32 [num_tokens, d_ff]; may be gate itself
};

void SwiGluCpu(const SwiGluArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void SwiGluCuda(const SwiGluArgs& args, Stream& stream);
void SwiGluReference(const SwiGluArgs& args, double* y);

inline constexpr Kernel<SwiGluArgs> kSwiGlu{"swiglu", SwiGluCpu, SwiGluCuda};

}  // namespace weir
