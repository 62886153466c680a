// What the CUDA kernels of the linear recurrence are given: plain pointers to device memory, so that the .cu
// files need neither Abseil nor the op's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
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
  const float* log_decay = nullptr;  // null: no decay
  float* o = nullptr;
  float* s_outer = nullptr;  // null with one level
  float* s_inner = nullptr;
  float* z_outer = nullptr;  // null when not normalised or with one level
  float* z_inner = nullptr;  // null when not normalised
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;
  int64_t decay_stride = 0;  // 0: one row for all tokens
  int64_t s_outer_stride = 0, s_inner_stride = 0, z_outer_stride = 0, z_inner_stride = 0;
  int num_kv_heads = 0;
  int state_dim = 0;
  int head_dim = 0;
  int queries = 1;      // query heads that read one state
  int states_of_k = 1;  // states in a row that share q and k
  int fold_tokens = 0;
  float min_log_decay = 0.0f;  // what is lower counts as this
  float scale = 1.0f;
  float eps = 0.0f;
};

// A block keeps its part of the state in registers, at most 16 rows a thread.
inline constexpr int kMaxCudaStateDim = 4096;
inline constexpr int kRecurrenceChunk = 64;  // kChunkTokens

// Queues the kernels for num_seqs runs, the longest of max_seq_tokens. A shape beyond the GPU's shared memory
// fails at the stream's next Synchronize.
void LaunchCudaRecurrence(const CudaRecurrence& recurrence, int num_seqs, int max_seq_tokens,
                          cudaStream_t stream);

// Bytes of shared memory of the largest block for this shape, whatever the runs and addresses are.
size_t CudaRecurrenceSharedBytes(const CudaRecurrence& recurrence);

// The part of it that whole chunks as matrix products are: states of at most 128 rows and, with a normaliser,
// 64 columns. By the shape alone.
bool RecurrenceHasChunks(const CudaRecurrence& recurrence);
void LaunchRecurrenceChunks(const CudaRecurrence& recurrence, int num_seqs, cudaStream_t stream);

}  // namespace weir
