// Copies rows of a few tokens into shared memory ahead of their use.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/device/cuda_ptx.cuh"

namespace weir {

inline bool Aligned16(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

// Rows that begin at 16-byte borders wherever a row or a multiple of four columns begins.
inline bool Aligned16(const float* rows, int64_t stride) { return Aligned16(rows) && stride % 4 == 0; }

// `count` rows of `width` floats, by all threads of the block; done after CpAsyncWait and a barrier. aligned:
// all rows of both sides begin at 16-byte borders and width is a multiple of four.
__device__ inline void StageRows(float* to, int to_stride, const float* from, int64_t from_stride, int count,
                                 int width, bool aligned) {
  const int step = aligned ? 4 : 1;
  const int pieces = width / step;
  for (int i = static_cast<int>(threadIdx.x); i < count * pieces; i += static_cast<int>(blockDim.x)) {
    const int row = i / pieces;
    const int column = (i - row * pieces) * step;
    float* const at = to + row * to_stride + column;
    const float* const source = from + row * from_stride + column;
    if (aligned)
      CpAsync16(at, source);
    else
      *at = *source;
  }
}

}  // namespace weir
