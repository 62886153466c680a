// What the CUDA kernel of the selective scan is given: plain pointers to device memory, so that the .cu file
// needs neither Abseil nor the op's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in SelectiveScanArgs; strides are elements between two rows.
struct CudaScan {
  const int32_t* cu_seqlens = nullptr;
  const int32_t* slots = nullptr;
  const float* u = nullptr;
  const float* dt = nullptr;
  const float* dt_bias = nullptr;  // or null
  const float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  const float* d = nullptr;
  const float* z = nullptr;  // null: no gate
  float* state = nullptr;
  float* y = nullptr;  // may be u, dt or z
  int64_t u_stride = 0, dt_stride = 0, a_stride = 0, b_stride = 0, c_stride = 0, z_stride = 0;
  int64_t state_stride = 0, y_stride = 0;
  int state_dim = 0;  // at most kMaxScanStateDim
  int channels = 0;
};

// Queues the kernel for num_seqs runs, the longest of max_seq_tokens.
void LaunchCudaScan(const CudaScan& scan, int num_seqs, int max_seq_tokens, cudaStream_t stream);

}  // namespace weir
