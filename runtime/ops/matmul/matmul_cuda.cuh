// What the kernels of matmul share: how the sum over k is cut, how a piece of W comes into shared memory, and
// how an output is finished.
//
// The order of a sum, which is the law of this op: k is cut into chunks (of 64 values of bf16 or int8, 32 of
// f32), and the chunks into kSegments runs of consecutive chunks whose borders depend on k alone. A segment
// is one chain from zero in ascending k: of mma.sync steps of 16 with W as their A and x as their B, or of
// fused multiply-adds. The total is ((0 + segment 0) + segment 1) + ... in f32; then times the scale where
// there is one, then bias, then the old y.
// Forms differ in who computes a segment, never in this order.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/device/cuda_launch.cuh"
#include "runtime/device/cuda_ptx.cuh"
#include "runtime/ops/matmul/matmul_cuda.h"

namespace weir::cuda_matmul {

inline constexpr int kLanes = 32;
inline constexpr int kUnitBytes = 16;
inline constexpr int kUnits = 8;      // of a row's chunk
inline constexpr int kInt8Units = 4;  // of int8
inline constexpr int kChunkBytes = kUnits * kUnitBytes;
inline constexpr int kSegments = 8;

// Chunk at which a segment begins; segment kSegments begins where the last one ends. Some are empty where
// there are fewer chunks than segments: they add +0 to a total that is never -0.
__host__ __device__ __forceinline__ int64_t SegmentBegin(int64_t chunks, int segment) {
  return chunks * segment / kSegments;
}

// Walks the chunks of one thread that computes all segments.
struct SegmentWalk {
  int64_t chunks;
  int segment = 0;
  // Whether `chunk` is the last of its segment; to be asked for every chunk in turn.
  __device__ __forceinline__ bool EndsWith(int64_t chunk) {
    if (SegmentBegin(chunks, segment + 1) > chunk + 1) return false;
    while (segment < kSegments && SegmentBegin(chunks, segment + 1) <= chunk + 1) ++segment;
    return true;
  }
};

// Where 16-byte unit `unit` of row `row` lies in a chunk of rows: eight rows' same units, or eight units of
// one row or of two, are in all 32 banks.
template <int kRowUnits = kUnits>
__device__ __forceinline__ int UnitIndex(int row, int unit) {
  if constexpr (kRowUnits == kInt8Units) return row * kInt8Units + (unit ^ (row / 2 & 3));
  return row * kUnits + (unit ^ (row & 7));
}

// Starts the copy of chunk `chunk` of kRows rows from first_row on; zeros from row `rows` on and beyond the
// row. Thread `thread` of kThreads.
template <int kRows, int kThreads, int kRowUnits = kUnits>
__device__ __forceinline__ void CopyChunk(const unsigned char* from, int64_t rows, int64_t row_bytes,
                                          int64_t first_row, int64_t chunk, int thread, uint4* stage) {
  static_assert(kRows * kRowUnits % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kRows * kRowUnits / kThreads; ++i) {
    const int index = thread + i * kThreads;
    const int row = index / kRowUnits;
    const int unit = index % kRowUnits;
    const int64_t at = chunk * (kRowUnits * kUnitBytes) + unit * kUnitBytes;
    const bool valid = first_row + row < rows && at < row_bytes;
    CpAsync16(stage + UnitIndex<kRowUnits>(row, unit),
              valid ? from + (first_row + row) * row_bytes + at : from, valid);
  }
}

template <int kRows, int kThreads, int kRowUnits = kUnits>
__device__ __forceinline__ void CopyWeights(const CudaMatmul& a, int64_t first_row, int64_t chunk, int thread,
                                            uint4* stage) {
  CopyChunk<kRows, kThreads, kRowUnits>(a.w, a.n, a.w_row_bytes, first_row, chunk, thread, stage);
}

// A row of x. Rows beyond the last are the last: what is computed from them is not written.
__device__ __forceinline__ const float* XRow(const CudaMatmul& a, int64_t row) {
  return a.x + (row < a.m ? row : a.m - 1) * a.x_stride;
}

// Whether all of a row of x from k to k + count can be read with vectors: the same for all threads.
__device__ __forceinline__ bool ReadsWhole(const CudaMatmul& a, int64_t k, int count) {
  return a.x_vector && k + count <= a.k;
}

// Values of a row of x from k on; unless kWhole, zero beyond the row.
template <bool kWhole>
__device__ __forceinline__ float2 LoadX2(const CudaMatmul& a, const float* row, int64_t k) {
  if constexpr (kWhole) return *reinterpret_cast<const float2*>(row + k);
  return make_float2(k < a.k ? row[k] : 0.0f, k + 1 < a.k ? row[k + 1] : 0.0f);
}
template <bool kWhole>
__device__ __forceinline__ float4 LoadX4(const CudaMatmul& a, const float* row, int64_t k) {
  if constexpr (kWhole) return *reinterpret_cast<const float4*>(row + k);
  const float2 low = LoadX2<false>(a, row, k);
  const float2 high = LoadX2<false>(a, row, k + 2);
  return make_float4(low.x, low.y, high.x, high.y);
}

// Writes output (row, column) of y, if it exists.
template <bool kScaled = false>
__device__ __forceinline__ void WriteOutput(const CudaMatmul& a, int64_t row, int64_t column, float total) {
  if (row >= a.m || column >= a.n) return;
  if constexpr (kScaled) total = __fmul_rn(total, a.scales[column]);
  float* const y = a.y + row * a.y_stride + column;
  if (a.bias != nullptr) total = __fadd_rn(total, a.bias[column]);
  if (a.accumulate) total = __fadd_rn(*y, total);
  *y = total;
}

inline bool VectorLoads(const CudaMatmul& a) {
  return reinterpret_cast<uintptr_t>(a.x) % 16 == 0 && a.x_stride % 4 == 0;
}

__host__ __device__ __forceinline__ constexpr int64_t DivideUp(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline dim3 OutputGrid(const CudaMatmul& a, int columns, int rows) {
  return dim3(static_cast<unsigned>(DivideUp(a.n, columns)), static_cast<unsigned>(DivideUp(a.m, rows)));
}

}  // namespace weir::cuda_matmul
