#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/short_conv/short_conv_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// One token: inputs[w] is the row that meets weight row w (`weight_stride` apart); all f32 [channels].
void ConvToken(const float* const* inputs, int width, const float* weight, int64_t weight_stride,
               const float* bias, bool silu, float* y, size_t channels) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  for (; c + lanes <= channels; c += lanes) {
    V sum = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c);
    for (int w = 0; w < width; ++w)
      sum = hn::MulAdd(hn::LoadU(d, weight + w * weight_stride + c), hn::LoadU(d, inputs[w] + c), sum);
    hn::StoreU(silu ? Silu(sum) : sum, d, y + c);
  }
  if (c == channels) return;
  const size_t rest = channels - c;
  V sum = bias == nullptr ? hn::Zero(d) : LoadPartial(bias + c, rest);
  for (int w = 0; w < width; ++w)
    sum =
        hn::MulAdd(LoadPartial(weight + w * weight_stride + c, rest), LoadPartial(inputs[w] + c, rest), sum);
  StorePartial(silu ? Silu(sum) : sum, y + c, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {
namespace {

HWY_EXPORT(ConvToken);

// A run and its window are cut by channels, so that a piece owns its part of the window.
constexpr int64_t kBlockChannels = 512;

// Channels [begin, begin + count) of run n.
void ConvRun(const ShortConvArgs& args, int64_t n, int64_t begin, int64_t count) {
  const int width = static_cast<int>(args.weight.dim(0));
  const int64_t channels = args.weight.dim(1);
  const int32_t first = args.batch.cu_seqlens.data<int32_t>()[n];
  const int tokens = args.batch.cu_seqlens.data<int32_t>()[n + 1] - first;
  const int kept = width - 1;
  float* window = kept == 0 ? nullptr : args.window.row<float>(args.batch.slots.data<int32_t>()[n]) + begin;
  const auto conv_token = HWY_DYNAMIC_DISPATCH(ConvToken);
  // Input i of the run; negative ones are in the window.
  const auto input = [&](int i) -> const float* {
    return i < 0 ? window + (kept + i) * channels : args.x.row<float>(first + i) + begin;
  };
  for (int t = 0; t < tokens; ++t) {
    const float* inputs[kMaxShortConvWidth];
    for (int w = 0; w < width; ++w) inputs[w] = input(t - kept + w);
    conv_token(inputs, width, args.weight.data<float>() + begin, args.weight.row_stride(),
               args.bias.empty() ? nullptr : args.bias.data<float>() + begin, args.silu,
               args.y.row<float>(first + t) + begin, static_cast<size_t>(count));
  }
  // Oldest first: a row is read from further on in the window than it is written to.
  if (tokens == 0) return;
  for (int i = 0; i < kept; ++i)
    std::memcpy(window + i * channels, input(tokens - kept + i), static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

void ShortConvCpu(const ShortConvArgs& args, Stream& stream) {
  const int64_t channels = args.weight.dim(1);
  WEIR_CHECK(args.weight.dim(0) >= 1 && args.weight.dim(0) <= kMaxShortConvWidth &&
             args.x.row_size() == channels);
  const int64_t blocks = (channels + kBlockChannels - 1) / kBlockChannels;
  const int64_t cost =
      std::max(1, args.batch.max_seq_tokens) * std::min(channels, kBlockChannels) * (args.weight.dim(0) + 8);
  ParallelRows(PoolOf(stream), args.batch.num_seqs * blocks, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % blocks * kBlockChannels;
      ConvRun(args, i / blocks, channel, std::min(kBlockChannels, channels - channel));
    }
  });
}

}  // namespace weir
#endif  // HWY_ONCE
