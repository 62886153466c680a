#include "tests/cuda/emulator_test_kernels.h"

#include <cuda_bf16.h>

#include "runtime/device/cuda_launch.cuh"
#include "runtime/device/cuda_ptx.cuh"

namespace weir {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kReverseThreads = 64;
constexpr int kCopyFloats = 128;  // of a round, 16 bytes a lane

__device__ int Thread() { return static_cast<int>(threadIdx.x); }
__device__ int BlockIndex() { return static_cast<int>(blockIdx.x); }

struct ReverseShared {
  float values[kReverseThreads];
};

__global__ void __launch_bounds__(kReverseThreads) ReverseKernel(const float* in, float* out, Bug bug) {
  ReverseShared& shared = StaticShared<ReverseShared>();
  const int i = Thread(), base = BlockIndex() * kReverseThreads;
  if (bug == Bug::kExitBeforeBarrier && i >= 32) return;
  if (bug != Bug::kUninitialisedShared || i != 7)
    shared.values[bug == Bug::kSharedOutOfBounds ? i + 1 : i] = in[base + i];
  if (bug == Bug::kDivergentBarrier && i < 32) {
    __syncthreads();
  } else if (bug != Bug::kNoBarrier) {
    __syncthreads();
  }
  out[base + i] = shared.values[kReverseThreads - 1 - i];
}

struct CopyShared {
  float4 values[kCopyFloats / 4];
};

__global__ void AsyncReverseKernel(const float* in, float* out, Bug bug) {
  CopyShared& shared = StaticShared<CopyShared>();
  for (int round = 0; round < 2; ++round) {
    const float* const from = in + round * kCopyFloats;
    if (Thread() < 32) CpAsync16(&shared.values[Thread()], from + Thread() * 4);
    CpAsyncCommit();
    if (bug != Bug::kNoCopyWait) CpAsyncWait<0>();
    __syncthreads();
    const auto* const values = reinterpret_cast<const float*>(shared.values);
    out[round * kCopyFloats + Thread()] = values[kCopyFloats - 1 - Thread()];
    if (bug != Bug::kNoBarrierBeforeReuse) __syncthreads();
  }
}

__global__ void WarpSumKernel(const float* in, float* out) {
  float sum = in[Thread()];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (Thread() % 32 == 0) out[Thread() / 32] = sum;
}

__global__ void SharedTreeKernel(const float* in, float* out, bool sync) {
  auto* const values = DynamicShared<float>();
  values[Thread()] = in[Thread()];
  if (sync) __syncwarp();
  for (int half = 16; half > 0; half /= 2) {
    const float other = Thread() < half ? values[Thread() + half] : 0.0f;
    if (sync) __syncwarp();
    if (Thread() < half) values[Thread()] += other;
    if (sync) __syncwarp();
  }
  if (Thread() == 0) *out = values[0];
}

__global__ void ShuffleAfterReturnKernel(float* out, int first_lane) {
  if (Thread() >= first_lane) return;
  out[Thread()] = __shfl_xor_sync(kAllLanes, static_cast<float>(Thread()), 1);
}

__global__ void VotesKernel(unsigned* out) {
  const int t = Thread();
  const unsigned half = (t & 16) != 0 ? 0xffff0000u : 0x0000ffffu;
  const unsigned across = __shfl_xor_sync(half, static_cast<unsigned>(t), 8, 16);
  unsigned beside = 0;
  if ((t & 16) != 0)
    beside = __shfl_up_sync(0xffff0000u, static_cast<unsigned>(t), 1, 16);
  else
    beside = __shfl_down_sync(0x0000ffffu, static_cast<unsigned>(t), 1, 16);
  const unsigned thirds = __ballot_sync(kAllLanes, t % 3 == 0);
  const int below_40 = __syncthreads_count(t < 40);
  const unsigned most = __reduce_max_sync(kAllLanes, static_cast<unsigned>(t));
  const int any = __any_sync(kAllLanes, t == 5), all = __all_sync(kAllLanes, t < 32);
  out[t * 7 + 0] = across;
  out[t * 7 + 1] = beside;
  out[t * 7 + 2] = thirds;
  out[t * 7 + 3] = static_cast<unsigned>(below_40);
  out[t * 7 + 4] = most;
  out[t * 7 + 5] = static_cast<unsigned>(any);
  out[t * 7 + 6] = static_cast<unsigned>(all);
}

__global__ void ReadAtKernel(const float* in, int64_t index, float* out) { *out = in[index]; }
__global__ void WriteAtKernel(float* out, int64_t index) { out[index] = 1.0f; }

__global__ void ReadVectorKernel(const float* in, int offset, float* out) {
  const float4 v = *reinterpret_cast<const float4*>(in + offset);
  *out = v.x + v.y + v.z + v.w;
}

__global__ void CountKernel(int* out, bool atomic) {
  if (Thread() != 0) return;
  if (atomic)
    atomicAdd(out, 1);
  else
    *out += 1;
}

struct LastBlockShared {
  bool is_last;
};

__global__ void LastBlockSumKernel(const float* in, float* partial, float* out, unsigned* done) {
  LastBlockShared& shared = StaticShared<LastBlockShared>();
  float sum = in[BlockIndex() * 32 + Thread()];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (Thread() == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    shared.is_last = atomicAdd(done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!shared.is_last || Thread() != 0) return;
  float total = 0.0f;
  for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
  *out = total;
}

struct MmaShared {
  alignas(16) uint16_t a[16][16];
  alignas(16) uint16_t b[8][16];
};

__global__ void MmaKernel(const uint16_t* a, const uint16_t* b, float* d, bool transposed_a) {
  MmaShared& shared = StaticShared<MmaShared>();
  const int lane = Thread();
  for (int i = lane; i < 256; i += 32) shared.a[i / 16][i % 16] = a[i];
  for (int i = lane; i < 128; i += 32) shared.b[i / 16][i % 16] = b[i];
  __syncwarp();
  uint32_t a_part[4], b_part[4];
  // Matrices of A: rows 0 and 8 of columns 0, then of columns 8. Transposed, the stored matrices change
  // places.
  const int matrix = lane / 8, row = lane % 8;
  const int first = matrix % 2 * 8, second = matrix / 2 * 8;
  if (transposed_a)
    LdMatrix4Trans(a_part, &shared.a[second + row][first]);
  else
    LdMatrix4(a_part, &shared.a[first + row][second]);
  LdMatrix4(b_part, &shared.b[row][matrix % 2 * 8]);  // two matrices, named twice
  float sum[4] = {};
  const uint32_t b_pair[2] = {b_part[0], b_part[1]};
  MmaBf16(sum, a_part, b_pair);
  const int group = lane / 4, column = lane % 4 * 2;
  d[group * 8 + column] = sum[0];
  d[group * 8 + column + 1] = sum[1];
  d[(group + 8) * 8 + column] = sum[2];
  d[(group + 8) * 8 + column + 1] = sum[3];
}

__global__ void IotaKernel(float* out, int n) {
  const int i = BlockIndex() * static_cast<int>(blockDim.x) + Thread();
  if (i < n) out[i] = static_cast<float>(i);
}

__global__ void AddOneKernel(const float* in, float* out, int n) {
  const int i = BlockIndex() * static_cast<int>(blockDim.x) + Thread();
  if (i < n) out[i] = in[i] + 1.0f;
}

__global__ void MathKernel(const float* in, float* out, int n) {
  const int i = Thread();
  if (i >= n) return;
  const float x = __ldg(in + i);
  float* const o = out + i * 8;
  o[0] = __expf(x);
  o[1] = __log2f(x) + log1pf(x);
  o[2] = __frsqrt_rn(x) - rsqrtf(x);
  o[3] = __fmaf_rn(x, x, __fmul_rn(-x, x));
  o[4] = __bfloat162float(__float2bfloat16(x));
  o[5] = fmaxf(x, 1.0f) + exp2f(x) + expf(x);
  o[6] = __fdiv_rn(__fsub_rn(x, 1.0f), __fadd_rn(x, 1.0f));
  o[7] = clock64() > 0 ? __uint_as_float(__float_as_uint(x)) : 0.0f;
}

dim3 Blocks(int n, int threads) { return dim3(static_cast<unsigned>((n + threads - 1) / threads)); }

}  // namespace

void LaunchReverse(const float* in, float* out, int blocks, Bug bug, cudaStream_t stream) {
  LaunchCuda(ReverseKernel, dim3(static_cast<unsigned>(blocks)), dim3(kReverseThreads), 0, stream, in, out,
             bug);
}
void LaunchAsyncReverse(const float* in, float* out, Bug bug, cudaStream_t stream) {
  LaunchCuda(AsyncReverseKernel, dim3(1), dim3(kCopyFloats), 0, stream, in, out, bug);
}
void LaunchWarpSum(const float* in, float* out, int warps, cudaStream_t stream) {
  LaunchCuda(WarpSumKernel, dim3(1), dim3(static_cast<unsigned>(warps) * 32), 0, stream, in, out);
}
void LaunchSharedTree(const float* in, float* out, bool sync, cudaStream_t stream) {
  LaunchCuda(SharedTreeKernel, dim3(1), dim3(32), 32 * sizeof(float), stream, in, out, sync);
}
void LaunchShuffleAfterReturn(float* out, int first_lane, cudaStream_t stream) {
  LaunchCuda(ShuffleAfterReturnKernel, dim3(1), dim3(32), 0, stream, out, first_lane);
}
void LaunchVotes(unsigned* out, cudaStream_t stream) {
  LaunchCuda(VotesKernel, dim3(1), dim3(64), 0, stream, out);
}
void LaunchReadAt(const float* in, int64_t index, float* out, cudaStream_t stream) {
  LaunchCuda(ReadAtKernel, dim3(1), dim3(1), 0, stream, in, index, out);
}
void LaunchWriteAt(float* out, int64_t index, cudaStream_t stream) {
  LaunchCuda(WriteAtKernel, dim3(1), dim3(1), 0, stream, out, index);
}
void LaunchReadVector(const float* in, int offset, float* out, cudaStream_t stream) {
  LaunchCuda(ReadVectorKernel, dim3(1), dim3(1), 0, stream, in, offset, out);
}
void LaunchCount(int* out, int blocks, bool atomic, cudaStream_t stream) {
  LaunchCuda(CountKernel, dim3(static_cast<unsigned>(blocks)), dim3(32), 0, stream, out, atomic);
}
void LaunchLastBlockSum(const float* in, float* partial, float* out, unsigned* done, int blocks,
                        cudaStream_t stream) {
  LaunchCuda(LastBlockSumKernel, dim3(static_cast<unsigned>(blocks)), dim3(32), 0, stream, in, partial, out,
             done);
}
void LaunchMma(const uint16_t* a, const uint16_t* b, float* d, bool transposed_a, cudaStream_t stream) {
  LaunchCuda(MmaKernel, dim3(1), dim3(32), 0, stream, a, b, d, transposed_a);
}
void LaunchIota(float* out, int n, size_t shared_bytes, cudaStream_t stream) {
  LaunchCuda(IotaKernel, Blocks(n, 64), dim3(64), shared_bytes, stream, out, n);
}
void LaunchAddOne(const float* in, float* out, int n, cudaStream_t stream) {
  LaunchCuda(AddOneKernel, Blocks(n, 64), dim3(64), 0, stream, in, out, n);
}
void LaunchMath(const float* in, float* out, int n, cudaStream_t stream) {
  LaunchCuda(MathKernel, dim3(1), dim3(32), 0, stream, in, out, n);
}

}  // namespace weir
