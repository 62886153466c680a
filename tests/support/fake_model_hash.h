// The arithmetic of FakeModel, for the host and for its CUDA kernel.
#pragma once

#include <cstdint>

#if defined(__CUDACC__) || defined(WEIR_CUDA_EMULATED)
#include <cuda_runtime.h>
#define WEIR_FAKE_MODEL_FUNCTION __host__ __device__ inline
#else
#define WEIR_FAKE_MODEL_FUNCTION inline
#endif

namespace weir::testing {

// After one more token; 24 bits, so exact in f32.
WEIR_FAKE_MODEL_FUNCTION uint32_t FakeHash(uint32_t hash, int32_t token) {
  return ((hash * 0x9e3779b1u) ^ (static_cast<uint32_t>(token) * 0x85ebca6bu) ^ (hash >> 7)) & 0xffffffu;
}

WEIR_FAKE_MODEL_FUNCTION int32_t FakeNext(uint32_t hash, int64_t count, int32_t vocab_size) {
  return static_cast<int32_t>(((hash >> 3) + static_cast<uint64_t>(count) * 7) %
                              static_cast<uint64_t>(vocab_size - 1));
}

WEIR_FAKE_MODEL_FUNCTION float FakeLogit(int32_t id, int32_t next) {
  return id == next ? 50.0f : -static_cast<float>((id * 37) % 11);
}

}  // namespace weir::testing
