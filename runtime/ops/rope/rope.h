// Rotary position embedding (Su et al. 2021) in the rotate-half pairing (i, i + head_dim/2), in place.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

struct RopeArgs {
  RaggedBatch batch;
  TensorView x;         // f32 [num_tokens, num_heads * head_dim], rotated in place
  TensorView inv_freq;  // f32 [head_dim / 2]
  int num_heads = 0;
};

void RopeCpu(const RopeArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void RopeCuda(const RopeArgs& args, Stream& stream);
void RopeReference(const RopeArgs& args, double* y);  // y: dense [num_tokens, num_heads * head_dim]

inline constexpr Kernel<RopeArgs> kRope{"rope", RopeCpu, RopeCuda};

}  // namespace weir
