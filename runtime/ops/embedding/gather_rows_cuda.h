// What the CUDA kernel of the row look-ups is given.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Strides are elements between two rows.
struct CudaGatherRows {
  const void* table = nullptr;     // [rows, width], bf16 or f32
  const int32_t* index = nullptr;  // [num_tokens]
  float* y = nullptr;              // [num_tokens, width]
  int64_t table_stride = 0, y_stride = 0;
  int64_t width = 0;
};

void LaunchCudaGatherRows(const CudaGatherRows& gather, bool bf16, int64_t num_tokens, cudaStream_t stream);

}  // namespace weir
