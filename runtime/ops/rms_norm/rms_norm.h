// y = x / sqrt(mean(x²) + eps) · w  (Zhang & Sennrich 2019), optionally times silu(gate), which comes after
// the norm or, as in Mamba-2 (Dao & Gu 2024), before it.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct RmsNormArgs {
  TensorView x;       // f32 [num_tokens, groups * width]; each group of `width` is normalised on its own
  TensorView weight;  // f32 [width], the same for every group, or [groups * width]
  TensorView gate;    // f32 like x, or empty
  TensorView y;       // f32 like x; may be x itself
  float eps = 1e-5f;
  int64_t group_width = 0;  // 0: the weight's
  bool gate_first = false;  // x is multiplied by silu(gate) before the norm, instead of y after it

  int64_t width() const { return group_width > 0 ? group_width : weight.dim(0); }
};

void RmsNormCpu(const RmsNormArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void RmsNormCuda(const RmsNormArgs& args, Stream& stream);
void RmsNormReference(const RmsNormArgs& args, double* y);  // y: dense [num_tokens, groups * width]

inline constexpr Kernel<RmsNormArgs> kRmsNorm{"rms_norm", RmsNormCpu, RmsNormCuda};

}  // namespace weir
