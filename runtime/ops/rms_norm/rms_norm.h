// y = x / sqrt(mean(x²) + eps) · w  (Zhang & Sennrich 2019), optionally times silu(gate).
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct RmsNormArgs {
  TensorView x;       // f32 [num_tokens, groups * width]; each group of `width` is normalised on its own
  TensorView weight;  // f32 [width]
  TensorView gate;    // f32 like x, or empty: y is multiplied by silu(gate) after the norm
  TensorView y;       // f32 like x; may be x itself
  float eps = 1e-5f;
};

void RmsNormCpu(const RmsNormArgs& args, Stream& stream);
void RmsNormReference(const RmsNormArgs& args, double* y);  // y: dense [num_tokens, groups * width]

inline constexpr Kernel<RmsNormArgs> kRmsNorm{"rms_norm", RmsNormCpu, nullptr};

}  // namespace weir
