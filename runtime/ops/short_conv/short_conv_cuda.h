// What the CUDA kernels of the short convolution are given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in ShortConvArgs; strides are elements between two rows.
struct CudaShortConv {
  const int32_t* cu_seqlens = nullptr;
  const int32_t* slots = nullptr;
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;  // or null
  float* window = nullptr;      // null where width is 1
  float* y = nullptr;
  int64_t x_stride = 0, weight_stride = 0, window_stride = 0, y_stride = 0;
  int num_seqs = 0;
  int num_tokens = 0;
  int max_seq_tokens = 0;
  int channels = 0;
  int width = 0;  // at most 16
  bool silu = true;
};

void LaunchCudaShortConv(const CudaShortConv& conv, cudaStream_t stream);

}  // namespace weir
