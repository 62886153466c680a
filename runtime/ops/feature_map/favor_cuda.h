// What the CUDA kernels of FAVOR+ are given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// Shapes as in FavorArgs; strides are elements between two rows.
struct CudaFavor {
  const int32_t* cu_seqlens = nullptr;
  const int32_t* slots = nullptr;
  const int64_t* positions = nullptr;
  const float* x = nullptr;
  const float* features = nullptr;
  float* y = nullptr;
  float* maximum = nullptr;    // null for queries
  float* log_decay = nullptr;  // null for queries
  int64_t x_stride = 0, features_stride = 0, y_stride = 0, maximum_stride = 0, log_decay_stride = 0;
  int num_seqs = 0;
  int num_tokens = 0;
  int max_seq_tokens = 0;
  int num_heads = 0;
  int head_dim = 0;
  int num_features = 0;
  float root = 1.0f;   // head_dim^(-1/4)
  float scale = 1.0f;  // 1 / √num_features
};

void LaunchCudaFavor(const CudaFavor& favor, cudaStream_t stream);

}  // namespace weir
