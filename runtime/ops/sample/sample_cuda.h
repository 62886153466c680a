// What the CUDA kernel of sampling is given.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/ops/sample/row_params.h"

namespace weir {

struct CudaSampleRows {
  float* logits = nullptr;
  int64_t stride = 0;  // elements between two rows
  int num_ids = 0;
  const RowParams* params = nullptr;
  RowSample* samples = nullptr;
};

// Queues the kernel for num_samples entries of params. A block needs 20 KiB and 16 bytes for each 512 ids of
// shared memory.
void LaunchCudaSampleRows(const CudaSampleRows& rows, int num_samples, cudaStream_t stream);

}  // namespace weir
