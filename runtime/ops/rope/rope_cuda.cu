// The rotary embedding on NVIDIA GPUs: 8 bytes move for each element. A block works out the rotations of its
// tokens once, in shared memory, and turns all heads by them.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/rope/rope_cuda.h"

namespace weir {
namespace {

constexpr int kThreads = 128;
constexpr int kItems = 2 * kThreads;  // what a block should have to do at least
constexpr int kMaxBlockTokens = 16;

struct Rotation {
  float cosine, sine;
};

// Of position · inv_freq. The angle is reduced to [-π/4, π/4] in double: at position 10⁶ an f32 angle is
// already 0.06 off. Taylor's series of sine and cosine have errors below 2e-9 there.
__device__ Rotation RotationOf(int64_t position, float inv_freq) {
  constexpr double kInverseHalfPi = 0.63661977236758134308;
  constexpr double kHalfPiHigh = 1.5707963267948966;
  constexpr double kHalfPiLow = 6.123233995736766e-17;
  const double whole = static_cast<double>(position) * static_cast<double>(inv_freq);
  const double quarters = rint(whole * kInverseHalfPi);
  const auto x = static_cast<float>(fma(-quarters, kHalfPiLow, fma(-quarters, kHalfPiHigh, whole)));
  const float z = __fmul_rn(x, x);
  float sine = __fmaf_rn(z, 1.0f / 362880.0f, -1.0f / 5040.0f);
  sine = __fmaf_rn(z, sine, 1.0f / 120.0f);
  sine = __fmaf_rn(z, sine, -1.0f / 6.0f);
  sine = __fmaf_rn(__fmul_rn(z, sine), x, x);
  float cosine = __fmaf_rn(z, -1.0f / 3628800.0f, 1.0f / 40320.0f);
  cosine = __fmaf_rn(z, cosine, -1.0f / 720.0f);
  cosine = __fmaf_rn(z, cosine, 1.0f / 24.0f);
  cosine = __fmaf_rn(z, cosine, -0.5f);
  cosine = __fmaf_rn(z, cosine, 1.0f);
  const auto quadrant = static_cast<int>(static_cast<int64_t>(quarters) & 3);
  Rotation out;
  out.cosine = quadrant % 2 == 0 ? cosine : sine;
  out.sine = quadrant % 2 == 0 ? sine : cosine;
  if (quadrant == 1 || quadrant == 2) out.cosine = -out.cosine;
  if (quadrant >= 2) out.sine = -out.sine;
  return out;
}

// Shared memory: cosines [tokens][half], then sines.
template <int kLanes>
__global__ void __launch_bounds__(kThreads) RopeKernel(CudaRope r, int block_tokens) {
  float* const cosines = DynamicShared<float>();
  float* const sines = cosines + block_tokens * r.half;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_tokens;
  const int tokens =
      first + block_tokens <= r.num_tokens ? block_tokens : static_cast<int>(r.num_tokens - first);
  for (int i = static_cast<int>(threadIdx.x); i < tokens * r.half; i += kThreads) {
    const int64_t token = first + i / r.half;
    const int run = FindRun(r.cu_seqlens, r.num_seqs, token);
    Rotation rotation{1.0f, 0.0f};  // of a row that is no run's
    if (run >= 0)
      rotation = RotationOf(r.positions[run] + (token - r.cu_seqlens[run]), r.inv_freq[i % r.half]);
    cosines[i] = rotation.cosine;
    sines[i] = rotation.sine;
  }
  __syncthreads();
  const int packs = r.half / kLanes;
  const int items = r.num_heads * packs;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * items; i += kThreads) {
    const int token = i / items;
    const int head = (i - token * items) / packs;
    const int pair = (i - token * items - head * packs) * kLanes;
    float* const at = r.x + (first + token) * r.x_stride + static_cast<int64_t>(head) * 2 * r.half + pair;
    Pack<kLanes> a = LoadPack<kLanes>(at);
    Pack<kLanes> b = LoadPack<kLanes>(at + r.half);
    const Pack<kLanes> c = LoadPack<kLanes>(cosines + token * r.half + pair);
    const Pack<kLanes> s = LoadPack<kLanes>(sines + token * r.half + pair);
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      const float before = a.lane[j];
      a.lane[j] = __fmaf_rn(-b.lane[j], s.lane[j], __fmul_rn(before, c.lane[j]));
      b.lane[j] = __fmaf_rn(before, s.lane[j], __fmul_rn(b.lane[j], c.lane[j]));
    }
    StorePack(a, at);
    StorePack(b, at + r.half);
  }
}

}  // namespace

void LaunchCudaRope(const CudaRope& r, cudaStream_t stream) {
  if (r.num_tokens == 0 || r.half == 0) return;
  const bool fit = FitPacks({r.half, r.x_stride}, {r.x});
  const int items = r.num_heads * (fit ? r.half / kPackLanes : r.half);
  int block_tokens = 1;
  while (block_tokens < kMaxBlockTokens && block_tokens * items < kItems) block_tokens *= 2;
  const dim3 grid(static_cast<unsigned>((r.num_tokens + block_tokens - 1) / block_tokens));
  const size_t shared_bytes =
      sizeof(float) * 2 * static_cast<size_t>(block_tokens) * static_cast<size_t>(r.half);
  LaunchCuda(fit ? RopeKernel<kPackLanes> : RopeKernel<1>, grid, dim3(kThreads), shared_bytes, stream, r,
             block_tokens);
}

}  // namespace weir
