// What the CUDA kernel of the rotary embedding is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in RopeArgs; x_stride is elements between two rows.
struct CudaRope {
  const int32_t* cu_seqlens = nullptr;
  const int64_t* positions = nullptr;
  const float* inv_freq = nullptr;
  float* x = nullptr;
  int64_t x_stride = 0;
  int num_seqs = 0;
  int num_tokens = 0;
  int num_heads = 0;
  int half = 0;  // head_dim / 2
};

void LaunchCudaRope(const CudaRope& rope, cudaStream_t stream);

}  // namespace weir
