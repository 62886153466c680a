// y = y + D x, one D for each head: what a state-space layer lets past its state (Dao & Gu 2024).
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct SkipArgs {
  TensorView x;  // f32 [num_tokens, num_heads * head_dim]
  TensorView d;  // f32 [num_heads]
  TensorView y;  // f32 like x
};

void SkipCpu(const SkipArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void SkipCuda(const SkipArgs& args, Stream& stream);
void SkipReference(const SkipArgs& args, double* y);  // y: dense, in and out

inline constexpr Kernel<SkipArgs> kSkip{"skip", SkipCpu, SkipCuda};

}  // namespace weir
