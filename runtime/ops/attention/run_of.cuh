// Which run of a ragged batch owns a token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// The last run that begins at or before `token`, so never an empty one. `token` is below
// cu_seqlens[num_seqs].
__device__ __forceinline__ int RunOf(const int32_t* cu_seqlens, int num_seqs, int64_t token) {
  int low = 0;
  int high = num_seqs - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu_seqlens[middle] <= token)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace weir
