// What the CUDA kernel of RMSNorm is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in RmsNormArgs; strides are elements between two rows; y may be x.
struct CudaRmsNorm {
  const float* x = nullptr;
  const float* weight = nullptr;
  const float* gate = nullptr;  // or null
  float* y = nullptr;
  int64_t x_stride = 0, gate_stride = 0, y_stride = 0;
  int64_t rows = 0;
  int groups = 0;
  int width = 0;         // of a group
  int weight_group = 0;  // elements from one group's weight to the next one's: 0 or width
  float eps = 0.0f;
  bool gate_first = false;
};

void LaunchCudaRmsNorm(const CudaRmsNorm& norm, cudaStream_t stream);

}  // namespace weir
