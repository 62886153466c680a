// What the CUDA kernels of row-wise operations share: packs of floats that are loaded at once, the functions
// that activations are made of, and the run that a token belongs to. Sums and products are rounded one by one
// (__fmul_rn and its like), so that two forms of a kernel have the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "runtime/device/cuda_launch.cuh"

namespace weir {

inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr int kWarpLanes = 32;
inline constexpr int kPackLanes = 4;  // 16 bytes

template <int kLanes>
struct alignas(kLanes * sizeof(float)) Pack {
  float lane[kLanes];
};

template <int kLanes>
__device__ __forceinline__ Pack<kLanes> LoadPack(const float* from) {
  return *reinterpret_cast<const Pack<kLanes>*>(from);
}

template <int kLanes>
__device__ __forceinline__ void StorePack(const Pack<kLanes>& pack, float* to) {
  *reinterpret_cast<Pack<kLanes>*>(to) = pack;
}

// The same into and out of an array; 16 bytes at once where kLanes is 4, and then `from` and `to` lie at such
// a border.
template <int kLanes>
__device__ __forceinline__ void LoadLanes(const float* from, float (&x)[kLanes]) {
  const Pack<kLanes> pack = LoadPack<kLanes>(from);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) x[i] = pack.lane[i];
}

template <int kLanes>
__device__ __forceinline__ void StoreLanes(const float (&x)[kLanes], float* to) {
  Pack<kLanes> pack;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) pack.lane[i] = x[i];
  StorePack(pack, to);
}

// Whether packs of kPackLanes may be used: the extents and strides are whole packs, the pointers (null ones
// too) begin at one.
inline bool FitPacks(std::initializer_list<int64_t> extents, std::initializer_list<const void*> pointers) {
  for (const int64_t extent : extents)
    if (extent % kPackLanes != 0) return false;
  for (const void* pointer : pointers)
    if (reinterpret_cast<uintptr_t>(pointer) % (kPackLanes * sizeof(float)) != 0) return false;
  return true;
}

// x · sigmoid(x) through exp(-|x|), which cannot overflow. NaN stays NaN.
__device__ __forceinline__ float Silu(float x) {
  const float e = expf(-fabsf(x));
  return __fmul_rn(x, __fdividef(x < 0.0f ? e : 1.0f, __fadd_rn(1.0f, e)));
}

// log(1 + exp(x)). NaN stays NaN.
__device__ __forceinline__ float Softplus(float x) {
  const float rest = log1pf(expf(-fabsf(x)));
  return __fadd_rn(x > 0.0f ? x : 0.0f, rest);
}

// The same sum in every lane, in an order that depends on nothing.
__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2)
    value = __fadd_rn(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

// The run that holds `token`, or -1: batches padded for a CUDA graph have rows beyond the last run.
__device__ __forceinline__ int FindRun(const int32_t* cu_seqlens, int num_seqs, int64_t token) {
  // One token a session, as in most steps.
  if (token < num_seqs && cu_seqlens[token] == token && cu_seqlens[token + 1] > token)
    return static_cast<int>(token);
  if (token >= cu_seqlens[num_seqs]) return -1;
  int low = 0;
  int high = num_seqs;  // cu_seqlens[low] <= token < cu_seqlens[high]
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (cu_seqlens[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

inline constexpr int kRowsThreads = 256;

// Calls operation.Apply<kLanes>(row, column) once for every pack. A block has 2^log2_threads packs of each of
// its rows.
template <int kLanes, class Operation>
__global__ void __launch_bounds__(kRowsThreads)
    RowsKernel(Operation operation, int64_t rows, int packs, int log2_threads) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kRowsThreads >> log2_threads) + (thread >> log2_threads);
  const int pack = (static_cast<int>(blockIdx.y) << log2_threads) + (thread & ((1 << log2_threads) - 1));
  if (row < rows && pack < packs) operation.template Apply<kLanes>(row, pack * kLanes);
}

// Queues an elementwise operation over [rows, columns], in packs where they fit.
template <class Operation>
void LaunchRows(const Operation& operation, int64_t rows, int64_t columns, bool fit_packs,
                cudaStream_t stream) {
  if (rows == 0 || columns == 0) return;
  const auto packs = static_cast<int>(fit_packs ? columns / kPackLanes : columns);
  int log2_threads = 0;
  while ((1 << log2_threads) < packs && (1 << log2_threads) < kRowsThreads) ++log2_threads;
  const int64_t block_rows = kRowsThreads >> log2_threads;
  const int block_packs = 1 << log2_threads;
  const dim3 grid(static_cast<unsigned>((rows + block_rows - 1) / block_rows),
                  static_cast<unsigned>((packs + block_packs - 1) / block_packs));
  LaunchCuda(fit_packs ? RowsKernel<kPackLanes, Operation> : RowsKernel<1, Operation>, grid,
             dim3(kRowsThreads), 0, stream, operation, rows, packs, log2_threads);
}

}  // namespace weir
