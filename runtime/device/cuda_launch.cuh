// How the project's CUDA kernels are launched and reach shared memory. This header and cuda_ptx.cuh are all
// that differs between nvcc and the emulation on the host, whose <cuda_runtime.h> brings its own
// (WEIR_CUDA_EMULATED).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace weir {

#if !defined(WEIR_CUDA_EMULATED)
// The block's dynamic shared memory, as many bytes as the launch asked for.
template <class T>
__device__ __forceinline__ T* DynamicShared() {
  extern __shared__ __align__(128) unsigned char weir_dynamic_shared[];
  return reinterpret_cast<T*>(weir_dynamic_shared);
}

// The block's one T in static shared memory.
template <class T>
__device__ __forceinline__ T& StaticShared() {
  __shared__ __align__(16) unsigned char weir_static_shared[sizeof(T)];
  return *reinterpret_cast<T*>(weir_static_shared);
}
#endif

// Dynamic shared memory that every GPU gives without being asked.
inline constexpr size_t kDefaultSharedBytes = 48 * 1024;

// A refused launch is the stream's error: Stream::Synchronize reports it, since cudaGetLastError keeps it.
template <class... Params, class... Args>
void LaunchCuda(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                Args&&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  if (shared_bytes > kDefaultSharedBytes)
    static_cast<void>(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes)));
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace weir
