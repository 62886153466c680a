// RMSNorm on NVIDIA GPUs: 8 bytes move for each element, 12 with a gate, and x stays in registers between the
// sum and the scaling. A warp or a block owns a group of a row. A thread's elements come in packs of four
// whether they are loaded at once or one by one, so that the sums, whose order depends on the width alone,
// have the same bits.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/rms_norm/rms_norm_cuda.h"

namespace weir {
namespace {

constexpr int kWarpGroups = 4;  // groups of a block whose warps own one each
constexpr int kBlockThreads = 256;
constexpr int kBlockWarps = kBlockThreads / kWarpLanes;

// Threads of a block where kThreads share a group.
__host__ __device__ constexpr int ThreadsOfBlock(int threads) {
  return threads == kWarpLanes ? kWarpGroups * kWarpLanes : threads;
}

struct WarpSums {
  float sum[kBlockWarps];
};

// One group of one row.
template <bool kFitPacks>
struct Group {
  const float* x;
  const float* weight;
  const float* gate;
  float* y;
  int width;
  bool gate_first;

  __device__ Group(const CudaRmsNorm& n, int64_t index) {
    const int64_t row = index / n.groups;
    const int group = static_cast<int>(index - row * n.groups);
    const int64_t column = static_cast<int64_t>(group) * n.width;
    x = n.x + row * n.x_stride + column;
    y = n.y + row * n.y_stride + column;
    gate = n.gate == nullptr ? nullptr : n.gate + row * n.gate_stride + column;
    weight = n.weight + group * n.weight_group;
    width = n.width;
    gate_first = n.gate_first && n.gate != nullptr;
  }

  // Zeros beyond the width.
  __device__ Pack<kPackLanes> Load(const float* from, int pack) const {
    from += pack * kPackLanes;
    if constexpr (kFitPacks) {
      return LoadPack<kPackLanes>(from);
    } else {
      Pack<kPackLanes> out;
      const int rest = width - pack * kPackLanes;
#pragma unroll
      for (int i = 0; i < kPackLanes; ++i) out.lane[i] = i < rest ? from[i] : 0.0f;
      return out;
    }
  }

  // What is to be normalised.
  __device__ Pack<kPackLanes> Input(int pack) const {
    Pack<kPackLanes> in = Load(x, pack);
    if (gate_first) {
      const Pack<kPackLanes> g = Load(gate, pack);
#pragma unroll
      for (int i = 0; i < kPackLanes; ++i) in.lane[i] = __fmul_rn(in.lane[i], Silu(g.lane[i]));
    }
    return in;
  }

  __device__ void Output(int pack, Pack<kPackLanes> in, float scale) const {
    const Pack<kPackLanes> w = Load(weight, pack);
#pragma unroll
    for (int i = 0; i < kPackLanes; ++i) in.lane[i] = __fmul_rn(__fmul_rn(in.lane[i], scale), w.lane[i]);
    if (gate != nullptr && !gate_first) {
      const Pack<kPackLanes> g = Load(gate, pack);
#pragma unroll
      for (int i = 0; i < kPackLanes; ++i) in.lane[i] = __fmul_rn(in.lane[i], Silu(g.lane[i]));
    }
    float* const to = y + pack * kPackLanes;
    if constexpr (kFitPacks) {
      StorePack(in, to);
    } else {
      const int rest = width - pack * kPackLanes;
#pragma unroll
      for (int i = 0; i < kPackLanes; ++i)
        if (i < rest) to[i] = in.lane[i];
    }
  }
};

__device__ float AddSquares(float sum, const Pack<kPackLanes>& in) {
#pragma unroll
  for (int i = 0; i < kPackLanes; ++i) sum = __fmaf_rn(in.lane[i], in.lane[i], sum);
  return sum;
}

// The sum over the kThreads threads of a group.
template <int kThreads>
__device__ float GroupSum(float sum) {
  sum = WarpSum(sum);
  if constexpr (kThreads > kWarpLanes) {
    WarpSums& shared = StaticShared<WarpSums>();
    if (threadIdx.x % kWarpLanes == 0) shared.sum[threadIdx.x / kWarpLanes] = sum;
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kBlockWarps; ++warp) sum = __fadd_rn(sum, shared.sum[warp]);
  }
  return sum;
}

// kThreads share a group and hold kHeld packs each in registers; a block reads what is wider a second time.
template <int kHeld, int kThreads, bool kFitPacks>
__global__ void __launch_bounds__(ThreadsOfBlock(kThreads)) NormKernel(CudaRmsNorm n) {
  constexpr int kGroups = ThreadsOfBlock(kThreads) / kThreads;
  constexpr bool kAnyWidth = kThreads == kBlockThreads;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / kThreads;
  if (index >= n.rows * n.groups) return;  // whole warps of a block without barriers
  const Group<kFitPacks> group(n, index);
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const int packs = (n.width + kPackLanes - 1) / kPackLanes;
  Pack<kPackLanes> held[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    held[j] = {};
    if (thread + j * kThreads < packs) held[j] = group.Input(thread + j * kThreads);
  }
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) sum = AddSquares(sum, held[j]);
  if constexpr (kAnyWidth)
    for (int pack = thread + kHeld * kThreads; pack < packs; pack += kThreads)
      sum = AddSquares(sum, group.Input(pack));
  sum = GroupSum<kThreads>(sum);
  const float scale = 1.0f / sqrtf(__fadd_rn(sum / static_cast<float>(n.width), n.eps));
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (thread + j * kThreads < packs) group.Output(thread + j * kThreads, held[j], scale);
  if constexpr (kAnyWidth)
    for (int pack = thread + kHeld * kThreads; pack < packs; pack += kThreads)
      group.Output(pack, group.Input(pack), scale);
}

template <int kHeld, int kThreads>
void Launch(const CudaRmsNorm& n, bool fit_packs, cudaStream_t stream) {
  constexpr int kGroups = ThreadsOfBlock(kThreads) / kThreads;
  const dim3 grid(static_cast<unsigned>((n.rows * n.groups + kGroups - 1) / kGroups));
  LaunchCuda(fit_packs ? NormKernel<kHeld, kThreads, true> : NormKernel<kHeld, kThreads, false>, grid,
             dim3(ThreadsOfBlock(kThreads)), 0, stream, n);
}

}  // namespace

void LaunchCudaRmsNorm(const CudaRmsNorm& n, cudaStream_t stream) {
  if (n.rows == 0 || n.groups == 0) return;
  const bool fit = FitPacks({n.width, n.x_stride, n.gate_stride, n.y_stride}, {n.x, n.weight, n.gate, n.y});
  if (n.width <= 2 * kWarpLanes * kPackLanes)
    Launch<2, kWarpLanes>(n, fit, stream);
  else if (n.width <= 8 * kWarpLanes * kPackLanes)
    Launch<8, kWarpLanes>(n, fit, stream);
  else
    Launch<8, kBlockThreads>(n, fit, stream);
}

}  // namespace weir
