// What the CUDA kernels of attention are given: plain pointers to device memory, so that the .cu files need
// neither Abseil nor the op's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

enum class CudaKvType { kF32, kF16, kBF16 };

// Shapes as in PagedKv; strides are elements from one block to the next.
struct CudaPagedKv {
  CudaKvType type = CudaKvType::kF32;
  void* keys = nullptr;
  void* values = nullptr;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
};

// Of RaggedBatch; the arrays lie on the device, the numbers are the host's.
struct CudaPagedBatch {
  const int32_t* cu_seqlens = nullptr;
  const int64_t* positions = nullptr;
  const int32_t* block_tables = nullptr;
  int64_t table_stride = 0;
  int num_tokens = 0;
  int num_seqs = 0;
};

struct CudaKvWrite {
  CudaPagedBatch batch;
  CudaPagedKv kv;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
};

struct CudaAttention {
  CudaPagedBatch batch;
  CudaPagedKv kv;
  const float* q = nullptr;
  float* o = nullptr;
  float* scratch = nullptr;
  int64_t q_stride = 0;
  int64_t o_stride = 0;
  int64_t scratch_floats = 0;
  int64_t max_positions = 0;  // every token's position is below it
  int max_seq_tokens = 0;
  int num_heads = 0;
  float scale = 1.0f;
};

void LaunchCudaKvWrite(const CudaKvWrite& write, cudaStream_t stream);
// head_dim up to 256. Runs of one token are cut along the sequence as far as `scratch_floats` hold the
// partial sums of their pieces; fewer floats cost time and change no bit.
void LaunchCudaAttention(const CudaAttention& attention, cudaStream_t stream);

}  // namespace weir
