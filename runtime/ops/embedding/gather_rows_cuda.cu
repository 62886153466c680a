// Row look-ups: a block copies a piece of one row, 16 bytes of the table a thread. Moves the rows once in and
// once out.
#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/embedding/gather_rows_cuda.h"

namespace weir {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float FromBf16(uint32_t bits) { return __uint_as_float(bits << 16); }

// Two values of bf16 in a word, the first one in its lower half.
__device__ __forceinline__ float2 FromBf16Pair(uint32_t pair) {
  return make_float2(FromBf16(pair), __uint_as_float(pair & 0xffff0000u));
}

__device__ __forceinline__ void CopyUnit(const uint16_t* from, float* to) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  const float2 a = FromBf16Pair(v.x);
  const float2 b = FromBf16Pair(v.y);
  const float2 c = FromBf16Pair(v.z);
  const float2 d = FromBf16Pair(v.w);
  reinterpret_cast<float4*>(to)[0] = make_float4(a.x, a.y, b.x, b.y);
  reinterpret_cast<float4*>(to)[1] = make_float4(c.x, c.y, d.x, d.y);
}
__device__ __forceinline__ void CopyUnit(const float* from, float* to) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float Value(uint16_t value) { return FromBf16(value); }
__device__ __forceinline__ float Value(float value) { return value; }

// grid: (tokens, pieces of a row).
template <class T>
__global__ void __launch_bounds__(kThreads) GatherRows(CudaGatherRows a) {
  constexpr int kUnit = 16 / sizeof(T);
  const int64_t token = blockIdx.x;
  const T* const from = static_cast<const T*>(a.table) + a.index[token] * a.table_stride;
  float* const to = a.y + token * a.y_stride;
  const bool aligned = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * (kThreads * kUnit);
  const int64_t end = begin + kThreads * kUnit < a.width ? begin + kThreads * kUnit : a.width;
  int64_t copied = begin;  // by whole units
  if (aligned) {
    copied += (end - begin) / kUnit * kUnit;
    const int64_t c = begin + static_cast<int64_t>(threadIdx.x) * kUnit;
    if (c < copied) CopyUnit(from + c, to + c);
  }
  for (int64_t c = copied + threadIdx.x; c < end; c += kThreads) to[c] = Value(from[c]);
}

template <class T>
void Launch(const CudaGatherRows& a, int64_t num_tokens, cudaStream_t stream) {
  constexpr int64_t kPiece = kThreads * (16 / sizeof(T));
  const dim3 grid(static_cast<unsigned>(num_tokens), static_cast<unsigned>((a.width + kPiece - 1) / kPiece));
  LaunchCuda(GatherRows<T>, grid, dim3(kThreads), 0, stream, a);
}

}  // namespace

void LaunchCudaGatherRows(const CudaGatherRows& gather, bool bf16, int64_t num_tokens, cudaStream_t stream) {
  if (bf16)
    Launch<uint16_t>(gather, num_tokens, stream);
  else
    Launch<float>(gather, num_tokens, stream);
}

}  // namespace weir
