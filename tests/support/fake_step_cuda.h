// What the CUDA kernel of FakeModel is given: plain pointers to device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir::testing {

// Shapes as in FakeStepArgs; strides are elements between two rows.
struct CudaFakeStep {
  const int32_t* cu_seqlens = nullptr;
  const int32_t* slots = nullptr;
  const int64_t* positions = nullptr;
  const int32_t* block_tables = nullptr;
  const int32_t* token_ids = nullptr;
  const int32_t* logit_rows = nullptr;
  float* words = nullptr;
  float* keys = nullptr;  // null without paged state
  float* logits = nullptr;
  int64_t max_blocks = 0, words_stride = 0, keys_stride = 0;
  int num_logits = 0;
  int vocab_size = 0;
  int block_tokens = 1;
  int poison_id = -1;
};

void LaunchCudaFakeStep(const CudaFakeStep& step, int num_seqs, cudaStream_t stream);

}  // namespace weir::testing
