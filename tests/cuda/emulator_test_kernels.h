// Small kernels, right ones and ones with a known mistake, for the emulator's own test.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace weir {

// What a kernel does wrong.
enum class Bug : uint8_t {
  kNone,
  kNoBarrier,
  kDivergentBarrier,
  kExitBeforeBarrier,
  kSharedOutOfBounds,
  kUninitialisedShared,
  kNoCopyWait,
  kNoBarrierBeforeReuse,
};

// out[b * 64 + i] = in[b * 64 + 63 - i], through shared memory.
void LaunchReverse(const float* in, float* out, int blocks, Bug bug, cudaStream_t stream);
// The same by cp.async, 16 bytes a lane, two rounds through one buffer: out = in reversed in each round of
// 128 floats.
void LaunchAsyncReverse(const float* in, float* out, Bug bug, cudaStream_t stream);
// out[w] = the sum of in[32 w …]; a butterfly, or a tree in shared memory that needs __syncwarp.
void LaunchWarpSum(const float* in, float* out, int warps, cudaStream_t stream);
void LaunchSharedTree(const float* in, float* out, bool sync, cudaStream_t stream);
// Lanes from `first_lane` on return before a shuffle whose mask names all.
void LaunchShuffleAfterReturn(float* out, int first_lane, cudaStream_t stream);
// Votes and shuffles of half warps: see the test.
void LaunchVotes(unsigned* out, cudaStream_t stream);
// out[0] = in[index] read, or out[index] = 1 written, by one thread.
void LaunchReadAt(const float* in, int64_t index, float* out, cudaStream_t stream);
void LaunchWriteAt(float* out, int64_t index, cudaStream_t stream);
// Reads a float4 at in + offset floats.
void LaunchReadVector(const float* in, int offset, float* out, cudaStream_t stream);
// Every block adds one to out[0], atomically or not.
void LaunchCount(int* out, int blocks, bool atomic, cudaStream_t stream);
// The last block to finish adds up what the others wrote.
void LaunchLastBlockSum(const float* in, float* partial, float* out, unsigned* done, int blocks,
                        cudaStream_t stream);
// d[16][8] = a[16][16] b[8][16]^T by ldmatrix and mma; and a transposed, so that d = a^T b^T.
void LaunchMma(const uint16_t* a, const uint16_t* b, float* d, bool transposed_a, cudaStream_t stream);
// out[i] = i, with `shared_bytes` of dynamic shared memory asked for and not otherwise used.
void LaunchIota(float* out, int n, size_t shared_bytes, cudaStream_t stream);
// out[i] = in[i] + 1.
void LaunchAddOne(const float* in, float* out, int n, cudaStream_t stream);
// Arithmetic built-ins: see the test.
void LaunchMath(const float* in, float* out, int n, cudaStream_t stream);

}  // namespace weir
