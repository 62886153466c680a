#include "runtime/ops/matmul/cublas_check_cuda.h"

#include "runtime/device/cuda_launch.cuh"

namespace weir {
namespace {

constexpr int kCheckThreads = 256;
constexpr int64_t kMaxCheckBlocks = 4096;  // which then go round

__device__ __forceinline__ uint32_t Hash(uint64_t i, uint32_t seed) {
  uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (h >> 30)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>(h >> 32);
}

// Of either sign, from 2^-7 to 2.
__device__ __forceinline__ float HashedValue(uint32_t hash) {
  const uint32_t exponent = 120 + (hash >> 24) % 8;
  return __uint_as_float((hash & 0x80000000u) | exponent << 23 | (hash & 0x7fffffu));
}

__device__ __forceinline__ int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * kCheckThreads + threadIdx.x;
}
__device__ __forceinline__ int64_t NextIndex(int64_t i) {
  return i + static_cast<int64_t>(gridDim.x) * kCheckThreads;
}

__global__ void __launch_bounds__(kCheckThreads) FillBf16(uint16_t* values, int64_t count, uint32_t seed) {
  for (int64_t i = FirstIndex(); i < count; i = NextIndex(i))
    values[i] = static_cast<uint16_t>(__float_as_uint(HashedValue(Hash(i, seed))) >> 16);
}

__device__ __forceinline__ float OldOutput(int64_t i) { return HashedValue(Hash(i, 3)); }

__global__ void __launch_bounds__(kCheckThreads) OldOutputs(CudaRowCheck check) {
  for (int64_t i = FirstIndex(); i < check.m * check.n; i = NextIndex(i)) check.y[i] = OldOutput(i);
}

__global__ void __launch_bounds__(kCheckThreads) CompareRows(CudaRowCheck check) {
  bool differs = false;
  const float* const expected = check.expected + check.first_row * check.n;
  for (int64_t i = FirstIndex(); i < check.m * check.n; i = NextIndex(i)) {
    const float want = check.accumulate ? __fadd_rn(OldOutput(i), expected[i]) : expected[i];
    differs = differs || __float_as_uint(check.y[i]) != __float_as_uint(want);
  }
  if (differs) atomicOr(check.differs, 1);
}

dim3 CheckGrid(int64_t count) {
  const int64_t blocks = (count + kCheckThreads - 1) / kCheckThreads;
  return dim3(static_cast<unsigned>(blocks < kMaxCheckBlocks ? blocks : kMaxCheckBlocks));
}

}  // namespace

void LaunchCudaFillBf16(void* values, int64_t count, uint32_t seed, cudaStream_t stream) {
  LaunchCuda(FillBf16, CheckGrid(count), dim3(kCheckThreads), 0, stream, static_cast<uint16_t*>(values),
             count, seed);
}

void LaunchCudaOldOutputs(const CudaRowCheck& check, cudaStream_t stream) {
  LaunchCuda(OldOutputs, CheckGrid(check.m * check.n), dim3(kCheckThreads), 0, stream, check);
}

void LaunchCudaCompareRows(const CudaRowCheck& check, cudaStream_t stream) {
  LaunchCuda(CompareRows, CheckGrid(check.m * check.n), dim3(kCheckThreads), 0, stream, check);
}

}  // namespace weir
