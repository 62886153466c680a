// What the CUDA kernel of Mamba-2's inputs is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in DiscretizeArgs; strides are elements between two rows; v may be x.
struct CudaDiscretize {
  const float* dt = nullptr;
  const float* bias = nullptr;
  const float* a = nullptr;
  const float* x = nullptr;
  float* log_decay = nullptr;
  float* v = nullptr;
  int64_t dt_stride = 0, x_stride = 0, log_decay_stride = 0, v_stride = 0;
  int head_dim = 0;
  float min_dt = 0.0f;
  float max_dt = 0.0f;
};

void LaunchCudaDiscretize(const CudaDiscretize& discretize, int64_t rows, int64_t columns,
                          cudaStream_t stream);

}  // namespace weir
