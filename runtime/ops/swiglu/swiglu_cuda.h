// What the CUDA kernel of SwiGLU is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Strides are elements between two rows; y may be gate.
struct CudaSwiGlu {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* y = nullptr;
  int64_t gate_stride = 0, up_stride = 0, y_stride = 0;
};

void LaunchCudaSwiGlu(const CudaSwiGlu& swiglu, int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace weir
