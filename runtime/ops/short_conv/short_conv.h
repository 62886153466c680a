// Depthwise causal convolution over the sequence, with the last width-1 inputs of each sequence kept as
// state.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

inline constexpr int kMaxShortConvWidth = 16;

// y[t, c] = act(bias[c] + sum_w weight[c, w] · x[t - width + 1 + w, c]); inputs before the run come from the
// state.
struct ShortConvArgs {
  RaggedBatch batch;
  TensorView x;       // f32 [num_tokens, channels]
  TensorView weight;  // f32 [width, channels], width at most kMaxShortConvWidth (transposed from the
                      // checkpoint's [channels, 1, width])
  TensorView bias;    // f32 [channels] or empty
  TensorView window;  // f32 [slots, width - 1, channels], oldest input first; read and updated in place
  TensorView y;       // f32 [num_tokens, channels]; not x
  bool silu = true;
};

void ShortConvCpu(const ShortConvArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void ShortConvCuda(const ShortConvArgs& args, Stream& stream);
void ShortConvReference(const ShortConvArgs& args, double* y,
                        double* window);  // window: dense [slots, width-1, channels]

inline constexpr Kernel<ShortConvArgs> kShortConv{"short_conv", ShortConvCpu, ShortConvCuda};

}  // namespace weir
