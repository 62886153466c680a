// What the kernels of the check at load are given (cublas_check.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// A product of m rows against the same rows of the product of all.
struct CudaRowCheck {
  const float* expected = nullptr;  // [all rows, n]
  float* y = nullptr;               // [m, n]
  int* differs = nullptr;           // not 0 once some bit did
  int64_t m = 0, n = 0;
  int64_t first_row = 0;  // where row 0 of y is among `expected`
  bool accumulate = false;
};

// bf16 values of either sign whose exponents differ, so that another order of a sum rounds differently.
void LaunchCudaFillBf16(void* values, int64_t count, uint32_t seed, cudaStream_t stream);
// Fills y with what an accumulating product is to add to.
void LaunchCudaOldOutputs(const CudaRowCheck& check, cudaStream_t stream);
void LaunchCudaCompareRows(const CudaRowCheck& check, cudaStream_t stream);

}  // namespace weir
