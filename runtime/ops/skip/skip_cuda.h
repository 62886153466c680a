// What the CUDA kernel of the skip connection is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in SkipArgs; strides are elements between two rows.
struct CudaSkip {
  const float* x = nullptr;
  const float* d = nullptr;
  float* y = nullptr;
  int64_t x_stride = 0, y_stride = 0;
  int head_dim = 0;
};

void LaunchCudaSkip(const CudaSkip& skip, int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace weir
