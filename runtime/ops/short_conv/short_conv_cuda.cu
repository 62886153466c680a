// The short convolution on NVIDIA GPUs. Two kernels. Tokens of long runs are worked on in tiles, many blocks
// a run, and leave the windows alone. Then, one thread for a run and a pack of channels, a short run is
// walked from its window to its new one, and a long run's window is copied from its last inputs, which needs
// nothing of the old one since a long run is longer than a window. A batch of short runs, as in decoding, is
// the second kernel alone: it moves 4 · (2 width) bytes for each channel and run. Long runs move 8 bytes for
// each element.
#include "runtime/ops/cuda_rows.cuh"
#include "runtime/ops/short_conv/short_conv_cuda.h"

namespace weir {
namespace {

constexpr int kThreads = 128;
constexpr int kUsualWidth = 4;
constexpr int kMaxWidth = 16;
constexpr int kMaxShortRun = 16;  // tokens
constexpr int kTileTokens = 16;
static_assert(kMaxShortRun >= kMaxWidth - 1);

// One pack of channels of one run, walked token by token. `tap` holds the last kTaps inputs, the newest last,
// of which the convolution sees the last `width`.
template <int kTaps, int kLanes>
struct Walk {
  const CudaShortConv& c;
  int channel;
  int64_t first = 0;  // token of the run
  int64_t slot = 0;
  Pack<kLanes> weight[kTaps];
  Pack<kLanes> bias;
  Pack<kLanes> tap[kTaps];

  __device__ Walk(const CudaShortConv& conv, int first_channel) : c(conv), channel(first_channel) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      weight[k] = {};
      tap[k] = {};
      if (Seen(k)) weight[k] = LoadPack<kLanes>(c.weight + (k - Unseen()) * c.weight_stride + channel);
    }
    bias = {};
    if (c.bias != nullptr) bias = LoadPack<kLanes>(c.bias + channel);
  }

  __device__ int Unseen() const { return kTaps - c.width; }
  __device__ bool Seen(int k) const { return k >= Unseen(); }
  __device__ float* WindowRow(int64_t i) const {
    return c.window + slot * c.window_stride + i * c.channels + channel;
  }
  // Input i of the run; negative ones are in the window.
  __device__ Pack<kLanes> Input(int64_t i) const {
    return LoadPack<kLanes>(i < 0 ? WindowRow(c.width - 1 + i) : c.x + (first + i) * c.x_stride + channel);
  }

  // To before token t of run n.
  __device__ void Start(int n, int64_t t) {
    first = c.cu_seqlens[n];
    slot = c.slots[n];
#pragma unroll
    for (int k = 1; k < kTaps; ++k)
      if (k > Unseen()) tap[k] = Input(t - kTaps + k);
  }

  __device__ void Token(int64_t t) {
#pragma unroll
    for (int k = 0; k + 1 < kTaps; ++k) tap[k] = tap[k + 1];
    tap[kTaps - 1] = Input(t);
    Pack<kLanes> sum = bias;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      if (!Seen(k)) continue;
#pragma unroll
      for (int i = 0; i < kLanes; ++i)
        sum.lane[i] = __fmaf_rn(weight[k].lane[i], tap[k].lane[i], sum.lane[i]);
    }
    if (c.silu) {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) sum.lane[i] = Silu(sum.lane[i]);
    }
    StorePack(sum, c.y + (first + t) * c.y_stride + channel);
  }

  // The run's last inputs, which the taps hold.
  __device__ void StoreWindow() const {
#pragma unroll
    for (int k = 1; k < kTaps; ++k)
      if (k > Unseen()) StorePack(tap[k], WindowRow(k - Unseen() - 1));
  }
};

// Tokens of long runs. grid: (tiles of tokens, tiles of channels).
template <int kTaps, int kLanes>
__global__ void __launch_bounds__(kThreads) TileKernel(CudaShortConv c) {
  const int channel = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kLanes;
  if (channel >= c.channels) return;
  int64_t token = static_cast<int64_t>(blockIdx.x) * kTileTokens;
  const int64_t end = token + kTileTokens;
  int run = FindRun(c.cu_seqlens, c.num_seqs, token);
  if (run < 0) return;
  Walk<kTaps, kLanes> walk(c, channel);
  for (; token < end && run < c.num_seqs; ++run) {
    const int64_t first = c.cu_seqlens[run];
    const int64_t run_end = c.cu_seqlens[run + 1];
    const int64_t stop = run_end < end ? run_end : end;
    if (run_end - first > kMaxShortRun) {
      walk.Start(run, token - first);
      for (int64_t t = token; t < stop; ++t) walk.Token(t - first);
    }
    token = stop;
  }
}

// Short runs and all windows. grid: (runs, tiles of channels).
template <int kTaps, int kLanes>
__global__ void __launch_bounds__(kThreads) RunKernel(CudaShortConv c) {
  const int channel = (static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x)) * kLanes;
  const auto run = static_cast<int>(blockIdx.x);
  const int64_t tokens = c.cu_seqlens[run + 1] - c.cu_seqlens[run];
  if (channel >= c.channels || tokens == 0) return;
  Walk<kTaps, kLanes> walk(c, channel);
  if (tokens <= kMaxShortRun) {
    walk.Start(run, 0);
    for (int64_t t = 0; t < tokens; ++t) walk.Token(t);
  } else {
    walk.Start(run, tokens);
  }
  walk.StoreWindow();
}

template <int kTaps, int kLanes>
void Launch(const CudaShortConv& c, cudaStream_t stream) {
  const auto channel_tiles =
      static_cast<unsigned>((c.channels + kThreads * kLanes - 1) / (kThreads * kLanes));
  if (c.max_seq_tokens > kMaxShortRun) {
    const auto token_tiles = static_cast<unsigned>((c.num_tokens + kTileTokens - 1) / kTileTokens);
    LaunchCuda(TileKernel<kTaps, kLanes>, dim3(token_tiles, channel_tiles), dim3(kThreads), 0, stream, c);
  }
  LaunchCuda(RunKernel<kTaps, kLanes>, dim3(static_cast<unsigned>(c.num_seqs), channel_tiles), dim3(kThreads),
             0, stream, c);
}

}  // namespace

void LaunchCudaShortConv(const CudaShortConv& c, cudaStream_t stream) {
  if (c.num_seqs == 0 || c.num_tokens == 0 || c.channels == 0) return;
  const bool fit = FitPacks({c.channels, c.x_stride, c.weight_stride, c.window_stride, c.y_stride},
                            {c.x, c.weight, c.bias, c.window, c.y});
  if (c.width <= kUsualWidth)
    fit ? Launch<kUsualWidth, kPackLanes>(c, stream) : Launch<kUsualWidth, 1>(c, stream);
  else
    fit ? Launch<kMaxWidth, kPackLanes>(c, stream) : Launch<kMaxWidth, 1>(c, stream);
}

}  // namespace weir
