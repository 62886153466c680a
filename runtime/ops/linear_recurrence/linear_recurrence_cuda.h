// What the CUDA kernel of the linear recurrence is given: plain pointers to device memory, so that the .cu
// file needs neither Abseil nor the op's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in LinearRecurrenceArgs; strides are elements between two rows.
struct CudaRecurrence {
  const int32_t* cu_seqlens = nullptr;
  const int32_t* slots = nullptr;
  const int64_t* positions = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* o = nullptr;
  float* s_outer = nullptr;
  float* s_inner = nullptr;
  float* z_outer = nullptr;  // null when not normalised
  float* z_inner = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;
  int64_t s_outer_stride = 0, s_inner_stride = 0, z_outer_stride = 0, z_inner_stride = 0;
  int state_dim = 0;
  int head_dim = 0;
  int queries = 1;  // query heads that read one state
  int fold_tokens = 0;
  float scale = 1.0f;
  float eps = 0.0f;
};

// Queues the kernels for num_seqs runs, the longest of max_seq_tokens. A block needs (queries + 3) ·
// state_dim + 129 · queries floats of shared memory; a shape beyond the GPU's limit fails at the stream's
// next Synchronize.
void LaunchCudaRecurrence(const CudaRecurrence& recurrence, int num_seqs, int num_kv_heads,
                          int max_seq_tokens, cudaStream_t stream);

}  // namespace weir
