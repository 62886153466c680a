// FAVOR+ on NVIDIA GPUs. Warps work out rows (a token's head): the exponents, whose sums go through head_dim
// in order however rows are shared out, and their maximum. A query, and a key that is all of its run, is
// finished there: 4 · (head_dim + num_features) bytes move for a row. Keys of longer runs take three passes
// more, since a key's maximum counts all keys before it: their exponents wait in y and their own maxima in
// log_decay, then every run and head has the latter's running maximum taken, which is exact in any order, y
// is finished, and log_decay becomes the differences.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/feature_map/favor_cuda.h"

namespace weir {
namespace {

constexpr int kProjectThreads = 128;
constexpr int kProjectWarps = kProjectThreads / kWarpLanes;
constexpr int kManyRows = 8;  // rows that a warp works out at once where there are enough of them
constexpr int64_t kEnoughRows = 2048;
constexpr int kInLanes = 2;  // elements of a row that are loaded at once, where packs fit

constexpr int kMaxFinishThreads = 256;
constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarpLanes;
constexpr int kScanTokens = 4;  // of a thread in one tile
constexpr int kScanTile = kScanThreads * kScanTokens;

// NaN where either is: in any order the same.
__device__ __forceinline__ float Larger(float a, float b) { return a > b || isnan(a) ? a : b; }

__device__ float WarpLargest(float value) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2)
    value = Larger(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

__device__ __forceinline__ float Phi(const CudaFavor& f, float exponent, float maximum) {
  return __fmul_rn(expf(__fadd_rn(exponent, -maximum)), f.scale);
}

// −|x̂|² / 2 of a row, the same in every lane. Never −0, nor is then an exponent.
__device__ float MinusHalfSquare(const CudaFavor& f, const float* x, int lane) {
  float square = 0.0f;
  for (int j = lane; j < f.head_dim; j += kWarpLanes) square = __fmaf_rn(x[j], x[j], square);
  return __fadd_rn(0.0f, -__fmul_rn(__fmul_rn(__fmul_rn(WarpSum(square), f.root), f.root), 0.5f));
}

// x W for kRows rows and this lane's features first, first + 32, ...
template <int kRows, int kColumns, int kLanes>
__device__ void Project(const CudaFavor& f, const float* const (&x)[kRows], int first,
                        float (&sum)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum[r][c] = 0.0f;
#pragma unroll(kRows == 1 ? 4 : 1)
  for (int j = 0; j < f.head_dim; j += kLanes) {
    Pack<kLanes> in[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) in[r] = LoadPack<kLanes>(x[r] + j);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float* const w = f.features + (j + i) * f.features_stride + first;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const float feature = first + c * kWarpLanes < f.num_features ? w[c * kWarpLanes] : 0.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) sum[r][c] = __fmaf_rn(in[r].lane[i], feature, sum[r][c]);
      }
    }
  }
}

// Where the values of a row go.
struct Row {
  int64_t token;
  int head;
  __device__ Row(const CudaFavor& f, int64_t row) : token(row / f.num_heads) {
    head = static_cast<int>(row - token * f.num_heads);
  }
  __device__ const float* X(const CudaFavor& f) const {
    return f.x + token * f.x_stride + static_cast<int64_t>(head) * f.head_dim;
  }
  __device__ float* Y(const CudaFavor& f) const {
    return f.y + token * f.y_stride + static_cast<int64_t>(head) * f.num_features;
  }
};

enum class Fate { kFinish, kWait, kNone };

// What becomes of a row whose own largest exponent is `largest`. Where it is finished now, `largest` becomes
// its maximum.
__device__ Fate Settle(const CudaFavor& f, const Row& row, int lane, float& largest) {
  if (f.maximum == nullptr) return Fate::kFinish;
  const int run = FindRun(f.cu_seqlens, f.num_seqs, row.token);
  if (run < 0) return Fate::kNone;
  float* const log_decay = f.log_decay + row.token * f.log_decay_stride + row.head;
  if (f.cu_seqlens[run + 1] - f.cu_seqlens[run] > 1) {
    if (lane == 0) *log_decay = largest;
    return Fate::kWait;
  }
  float* const running = f.maximum + f.slots[run] * f.maximum_stride + row.head;
  const bool begins = f.positions[run] == 0;
  const float before = begins ? largest : *running;
  largest = Larger(before, largest);
  __syncwarp();
  if (lane == 0) {
    *log_decay = begins ? 0.0f : __fadd_rn(before, -largest);
    *running = largest;
  }
  return Fate::kFinish;
}

// Blocks on a multiprocessor, few enough that no register of rows · columns sums is spilled.
__host__ __device__ constexpr int ProjectBlocks(int rows, int columns) { return rows * columns < 64 ? 3 : 2; }

// A warp works out kRows rows, kColumns · 32 features at a time.
template <int kRows, int kColumns, int kLanes>
__global__ void __launch_bounds__(kProjectThreads, ProjectBlocks(kRows, kColumns))
    ProjectKernel(CudaFavor f, int64_t rows) {
  constexpr int kTile = kColumns * kWarpLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) * kProjectWarps + static_cast<int>(threadIdx.x) / kWarpLanes) * kRows;
  if (begin >= rows) return;
  const float* x[kRows];
  float offset[kRows];
  float largest[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    x[r] = Row(f, begin + r < rows ? begin + r : begin).X(f);
    offset[r] = MinusHalfSquare(f, x[r], lane);
    largest[r] = -INFINITY;
  }
  const bool one_tile = f.num_features <= kTile;
  float e[kRows][kColumns];
  for (int base = 0; base < f.num_features; base += kTile) {
    Project<kRows, kColumns, kLanes>(f, x, base + lane, e);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float* const y = Row(f, begin + r).Y(f) + base + lane;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (base + lane + c * kWarpLanes >= f.num_features) continue;
        e[r][c] = __fadd_rn(__fmul_rn(e[r][c], f.root), offset[r]);
        largest[r] = Larger(largest[r], e[r][c]);
        if (!one_tile && begin + r < rows) y[c * kWarpLanes] = e[r][c];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (begin + r >= rows) continue;
    const Row row(f, begin + r);
    float maximum = WarpLargest(largest[r]);
    const Fate fate = Settle(f, row, lane, maximum);
    if (fate == Fate::kNone || (fate == Fate::kWait && !one_tile)) continue;
    for (int base = 0; base < f.num_features; base += kTile) {
      float* const y = row.Y(f) + base + lane;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (base + lane + c * kWarpLanes >= f.num_features) continue;
        const float exponent = one_tile ? e[r][c] : y[c * kWarpLanes];
        y[c * kWarpLanes] = fate == Fate::kWait ? exponent : Phi(f, exponent, maximum);
      }
    }
  }
}

// The last of the runs' maxima so far, by warp.
struct ScanWarpMaxima {
  float largest[kScanWarps];
};

// log_decay of a run of several tokens from each key's own maximum to the running one, that of earlier steps
// included. grid: (runs, heads).
__global__ void __launch_bounds__(kScanThreads) RunningMaximumKernel(CudaFavor f) {
  const int64_t begin = f.cu_seqlens[blockIdx.x];
  const int64_t end = f.cu_seqlens[blockIdx.x + 1];
  if (end - begin <= 1) return;
  ScanWarpMaxima& shared = StaticShared<ScanWarpMaxima>();
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
  float so_far = f.positions[blockIdx.x] == 0
                     ? -INFINITY
                     : f.maximum[f.slots[blockIdx.x] * f.maximum_stride + static_cast<int>(blockIdx.y)];
  for (int64_t tile = begin; tile < end; tile += kScanTile) {
    const int64_t first = tile + static_cast<int64_t>(threadIdx.x) * kScanTokens;
    float* const at = f.log_decay + first * f.log_decay_stride + static_cast<int>(blockIdx.y);
    float value[kScanTokens];
#pragma unroll
    for (int i = 0; i < kScanTokens; ++i) value[i] = first + i < end ? at[i * f.log_decay_stride] : -INFINITY;
#pragma unroll
    for (int i = 1; i < kScanTokens; ++i) value[i] = Larger(value[i - 1], value[i]);
    // Up to and including this thread's.
    float largest = value[kScanTokens - 1];
#pragma unroll
    for (int offset = 1; offset < kWarpLanes; offset *= 2) {
      const float other = __shfl_up_sync(kWholeWarp, largest, offset);
      if (lane >= offset) largest = Larger(other, largest);
    }
    float before = __shfl_up_sync(kWholeWarp, largest, 1);
    if (lane == 0) before = -INFINITY;
    if (lane == kWarpLanes - 1) shared.largest[warp] = largest;
    __syncthreads();
    before = Larger(so_far, before);
#pragma unroll
    for (int w = 0; w < kScanWarps; ++w) {
      if (w < warp) before = Larger(shared.largest[w], before);
      so_far = Larger(so_far, shared.largest[w]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kScanTokens; ++i)
      if (first + i < end) at[i * f.log_decay_stride] = Larger(before, value[i]);
  }
}

// y of keys whose exponents wait there, with the running maxima that lie in log_decay. A block a token.
template <int kLanes>
__global__ void __launch_bounds__(kMaxFinishThreads) FinishKernel(CudaFavor f) {
  const int step = static_cast<int>(blockDim.x) * kLanes;
  const int64_t token = blockIdx.x;
  const int run = FindRun(f.cu_seqlens, f.num_seqs, token);
  if (run < 0 || f.cu_seqlens[run + 1] - f.cu_seqlens[run] <= 1) return;
  const float* const maxima = f.log_decay + token * f.log_decay_stride;
  float* const y = f.y + token * f.y_stride;
  const int columns = f.num_heads * f.num_features;
  for (int column = static_cast<int>(threadIdx.x) * kLanes; column < columns; column += step) {
    const float maximum = maxima[column / f.num_features];  // a pack lies in one head
    Pack<kLanes> pack = LoadPack<kLanes>(y + column);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) pack.lane[i] = Phi(f, pack.lane[i], maximum);
    StorePack(pack, y + column);
  }
}

// log_decay of a run of several tokens from running maxima to what they rise by, from the run's end so that a
// tile's predecessor is still there; and the slot's maximum. grid: (runs, heads).
__global__ void __launch_bounds__(kScanThreads) LogDecayKernel(CudaFavor f) {
  const int64_t begin = f.cu_seqlens[blockIdx.x];
  const int64_t tokens = f.cu_seqlens[blockIdx.x + 1] - begin;
  if (tokens <= 1) return;
  const bool begins = f.positions[blockIdx.x] == 0;
  float* const running = f.maximum + f.slots[blockIdx.x] * f.maximum_stride + static_cast<int>(blockIdx.y);
  float* const run = f.log_decay + begin * f.log_decay_stride + static_cast<int>(blockIdx.y);
  const float earlier = begins ? 0.0f : *running;
  __syncthreads();
  if (threadIdx.x == 0) *running = run[(tokens - 1) * f.log_decay_stride];
  for (int64_t tile = (tokens - 1) / kScanTile * kScanTile; tile >= 0; tile -= kScanTile) {
    float change[kScanTokens];
#pragma unroll
    for (int i = 0; i < kScanTokens; ++i) {
      const int64_t t = tile + i * kScanThreads + static_cast<int>(threadIdx.x);
      if (t >= tokens) continue;
      const float maximum = run[t * f.log_decay_stride];
      const float before = t > 0 ? run[(t - 1) * f.log_decay_stride] : begins ? maximum : earlier;
      change[i] = t == 0 && begins ? 0.0f : __fadd_rn(before, -maximum);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kScanTokens; ++i) {
      const int64_t t = tile + i * kScanThreads + static_cast<int>(threadIdx.x);
      if (t < tokens) run[t * f.log_decay_stride] = change[i];
    }
  }
}

template <int kRows, int kColumns>
void LaunchProject(const CudaFavor& f, int64_t rows, cudaStream_t stream) {
  constexpr int kBlockRows = kRows * kProjectWarps;
  const dim3 grid(static_cast<unsigned>((rows + kBlockRows - 1) / kBlockRows));
  const bool fit = FitPacks({f.head_dim, f.x_stride}, {f.x});
  LaunchCuda(fit ? ProjectKernel<kRows, kColumns, kInLanes> : ProjectKernel<kRows, kColumns, 1>, grid,
             dim3(kProjectThreads), 0, stream, f, rows);
}

template <int kRows>
void LaunchProject(const CudaFavor& f, int64_t rows, cudaStream_t stream) {
  if (f.num_features <= 2 * kWarpLanes)
    LaunchProject<kRows, 2>(f, rows, stream);
  else if (f.num_features <= 4 * kWarpLanes)
    LaunchProject<kRows, 4>(f, rows, stream);
  else
    LaunchProject<kRows, 8>(f, rows, stream);
}

}  // namespace

void LaunchCudaFavor(const CudaFavor& f, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(f.num_tokens) * f.num_heads;
  if (rows == 0 || f.num_seqs == 0) return;
  if (rows < kEnoughRows)
    LaunchProject<1>(f, rows, stream);
  else
    LaunchProject<kManyRows>(f, rows, stream);
  if (f.maximum == nullptr || f.max_seq_tokens <= 1) return;
  const dim3 runs(static_cast<unsigned>(f.num_seqs), static_cast<unsigned>(f.num_heads));
  LaunchCuda(RunningMaximumKernel, runs, dim3(kScanThreads), 0, stream, f);
  const bool fit = FitPacks({f.num_features, f.y_stride}, {f.y});
  const int packs = f.num_heads * f.num_features / (fit ? kPackLanes : 1);
  int threads = (packs + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
  if (threads > kMaxFinishThreads) threads = kMaxFinishThreads;
  LaunchCuda(fit ? FinishKernel<kPackLanes> : FinishKernel<1>, dim3(static_cast<unsigned>(f.num_tokens)),
             dim3(static_cast<unsigned>(threads)), 0, stream, f);
  LaunchCuda(LogDecayKernel, runs, dim3(kScanThreads), 0, stream, f);
}

}  // namespace weir
