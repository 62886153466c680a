// A block's state makes one trip from memory and back per run, whatever the number of its tokens; all that is
// done for a token is vectors of channels. So a prefill is as parallel as the projections around it.
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/selective_scan/selective_scan_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/selective_scan/scan_block.h"
#include "runtime/ops/selective_scan/selective_scan.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

constexpr float kLog2E = 1.4426950408889634f;
// Floats of a block's state, and of its A, while a run is worked on: 32 kB each.
constexpr int64_t kScanScratch = 8192;
// Rows of the token inputs lie kilobytes apart, so the processor does not see which one comes next.
constexpr int64_t kPrefetchTokens = 6;

// Where a tile's A (times log2 e where kScaled) and state are during the scan; [state_dim][vectors].
struct ScanTile {
  const float* a;
  int64_t a_stride;
  float* h;
  int64_t h_stride;
};

template <bool kPartial>
HWY_INLINE V LoadLanes(const float* from, size_t count) {
  return kPartial ? LoadPartial(from, count) : hn::LoadU(F32(), from);
}

// Token t for `kVectors` vectors of channels from `column`; of one vector's `count` first lanes if kPartial.
template <int kVectors, bool kPartial, bool kScaled>
HWY_INLINE void ScanToken(const ScanBlock& block, int64_t t, int64_t column, size_t count,
                          const ScanTile& tile) {
  static_assert(kVectors == 1 || !kPartial);
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V delta[kVectors];
  V delta_u[kVectors];
  V y[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = column + v * lanes;
    V dt = LoadLanes<kPartial>(block.dt + t * block.dt_stride + at, count);
    if (block.dt_bias != nullptr) dt = hn::Add(dt, LoadLanes<kPartial>(block.dt_bias + at, count));
    const V u = LoadLanes<kPartial>(block.u + t * block.u_stride + at, count);
    delta[v] = Softplus(dt);
    delta_u[v] = hn::Mul(delta[v], u);
    y[v] = hn::Mul(LoadLanes<kPartial>(block.d + at, count), u);
  }
  const float* b = block.b + t * block.b_stride;
  const float* c = block.c + t * block.c_stride;
  for (int64_t n = 0; n < block.state_dim; ++n) {
    const V b_n = hn::Set(d, b[n]);
    const V c_n = hn::Set(d, c[n]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V a = hn::LoadU(d, tile.a + n * tile.a_stride + v * lanes);
      if (!kScaled) a = hn::Mul(a, hn::Set(d, kLog2E));
      float* h = tile.h + n * tile.h_stride + v * lanes;
      if (!kScaled) __builtin_prefetch(h + kVectors * lanes, 1);  // of the next tile, which comes from memory
      const V decay = Exp2NonPositive(d, hn::Mul(delta[v], a));
      const V state = hn::MulAdd(decay, hn::LoadU(d, h), hn::Mul(delta_u[v], b_n));
      hn::StoreU(state, d, h);
      y[v] = hn::MulAdd(c_n, state, y[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = column + v * lanes;
    V out = y[v];
    if (block.z != nullptr)
      out = hn::Mul(out, Silu(LoadLanes<kPartial>(block.z + t * block.z_stride + at, count)));
    float* to = block.y + t * block.y_stride + at;
    if (kPartial)
      StorePartial(out, to, count);
    else
      hn::StoreU(out, d, to);
  }
}

HWY_INLINE void PrefetchToken(const ScanBlock& block, int64_t t, int64_t column, int64_t width) {
  if (t >= block.tokens) return;
  for (int64_t at = column; at < column + width; at += 16) {
    __builtin_prefetch(block.u + t * block.u_stride + at);
    __builtin_prefetch(block.dt + t * block.dt_stride + at);
    if (block.z != nullptr) __builtin_prefetch(block.z + t * block.z_stride + at);
  }
}

// All tokens for one tile. Its A and state move to scratch, where rows are dense and padded to whole vectors.
template <int kVectors, bool kPartial>
HWY_NOINLINE void ScanTokens(const ScanBlock& block, int64_t column, size_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVectors * lanes;
  HWY_ALIGN float a[kScanScratch];
  HWY_ALIGN float h[kScanScratch];
  for (int64_t n = 0; n < block.state_dim; ++n) {
    for (int64_t at = 0; at < width; at += lanes) {
      const V a_n = LoadLanes<kPartial>(block.a + n * block.a_stride + column + at, count);
      hn::Store(hn::Mul(a_n, hn::Set(d, kLog2E)), d, a + n * width + at);
      const V h_n = LoadLanes<kPartial>(block.state + n * block.state_stride + column + at, count);
      hn::Store(h_n, d, h + n * width + at);
    }
  }
  const ScanTile tile{a, width, h, width};
  for (int64_t t = 0; t < block.tokens; ++t) {
    PrefetchToken(block, t + kPrefetchTokens, column, kPartial ? 1 : width);
    ScanToken<kVectors, kPartial, true>(block, t, column, count, tile);
  }
  for (int64_t n = 0; n < block.state_dim; ++n) {
    for (int64_t at = 0; at < width; at += lanes) {
      float* to = block.state + n * block.state_stride + column + at;
      if (kPartial)
        StorePartial(hn::Load(d, h + n * width + at), to, count);
      else
        hn::StoreU(hn::Load(d, h + n * width + at), d, to);
    }
  }
}

template <int kVectors>
HWY_INLINE void ScanWhole(const ScanBlock& block, int64_t column) {
  if (block.tokens > 1) return ScanTokens<kVectors, false>(block, column, 0);
  // A single token passes over the state once, where it is.
  const ScanTile tile{block.a + column, block.a_stride, block.state + column, block.state_stride};
  ScanToken<kVectors, false, false>(block, 0, column, 0, tile);
}

void ScanRun(const ScanBlock& block) {
  if (block.tokens == 0) return;
  constexpr int kVectors = 4;
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  if (block.state_dim * kVectors * lanes <= kScanScratch)
    for (; column + kVectors * lanes <= block.channels; column += kVectors * lanes)
      ScanWhole<kVectors>(block, column);
  for (; column + lanes <= block.channels; column += lanes) ScanWhole<1>(block, column);
  if (column < block.channels)
    ScanTokens<1, true>(block, column, static_cast<size_t>(block.channels - column));
}

static_assert(kMaxScanStateDim * HWY_MAX_BYTES / sizeof(float) <= kScanScratch);

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {
namespace {

HWY_EXPORT(ScanRun);

ScanBlock BlockOf(const SelectiveScanArgs& args, int64_t run, int64_t channel) {
  ScanBlock block;
  const int64_t first = args.batch.cu_seqlens.data<int32_t>()[run];
  block.tokens = args.batch.cu_seqlens.data<int32_t>()[run + 1] - first;
  block.state_dim = args.a.dim(0);
  block.channels = std::min(kScanChannels, args.a.dim(1) - channel);
  block.u = args.u.row<float>(first) + channel;
  block.dt = args.dt.row<float>(first) + channel;
  block.z = args.z.empty() ? nullptr : args.z.row<float>(first) + channel;
  block.y = args.y.row<float>(first) + channel;
  block.b = args.b.row<float>(first);
  block.c = args.c.row<float>(first);
  block.dt_bias = args.dt_bias.empty() ? nullptr : args.dt_bias.data<float>() + channel;
  block.a = args.a.data<float>() + channel;
  block.d = args.d.data<float>() + channel;
  block.state = args.state.row<float>(args.batch.slots.data<int32_t>()[run]) + channel;
  block.u_stride = args.u.row_stride();
  block.dt_stride = args.dt.row_stride();
  block.z_stride = args.z.row_stride();
  block.y_stride = args.y.row_stride();
  block.b_stride = args.b.row_stride();
  block.c_stride = args.c.row_stride();
  block.a_stride = args.a.row_stride();
  block.state_stride = args.a.dim(1);
  return block;
}

}  // namespace

void SelectiveScanCpu(const SelectiveScanArgs& args, Stream& stream) {
  const int64_t state_dim = args.a.dim(0);
  const int64_t channels = args.a.dim(1);
  WEIR_CHECK(state_dim >= 1 && state_dim <= kMaxScanStateDim);
  WEIR_CHECK(args.u.row_size() == channels && args.dt.row_size() == channels &&
             args.y.row_size() == channels && args.d.num_elements() == channels);
  WEIR_CHECK(args.b.row_size() == state_dim && args.c.row_size() == state_dim);
  WEIR_CHECK(args.state.dim(1) == state_dim && args.state.dim(2) == channels);
  const auto scan = HWY_DYNAMIC_DISPATCH(ScanRun);
  const int64_t blocks = (channels + kScanChannels - 1) / kScanChannels;
  // Some 14 operations per element of the state, and as much as 4 elements for softplus and gate.
  const int64_t cost =
      std::max(1, args.batch.max_seq_tokens) * std::min(channels, kScanChannels) * (state_dim + 4) * 14;
  ParallelRows(PoolOf(stream), args.batch.num_seqs * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) scan(BlockOf(args, i / blocks, i % blocks * kScanChannels));
  });
}

}  // namespace weir
#endif  // HWY_ONCE
