// What the CUDA kernel of elu + 1 is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Strides are elements between two rows; y may be x.
struct CudaEluPlusOne {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t x_stride = 0, y_stride = 0;
};

void LaunchCudaEluPlusOne(const CudaEluPlusOne& elu, int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace weir
