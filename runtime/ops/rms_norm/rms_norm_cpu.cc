#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/rms_norm/rms_norm_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// One group: x, y and gate (or null) are f32 [width].
void NormGroup(const float* x, const float* weight, const float* gate, float* y, size_t width, float eps) {
  const F32 d;
  const float sum = Sum2(x, x, width, [](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
  const V scale = hn::Set(d, 1.0f / std::sqrt(sum / static_cast<float>(width) + eps));
  if (gate == nullptr) {
    Map2(x, weight, y, width, [scale](V a, V w) HWY_ATTR { return hn::Mul(hn::Mul(a, scale), w); });
    return;
  }
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const V normed = hn::Mul(hn::Mul(hn::LoadU(d, x + i), scale), hn::LoadU(d, weight + i));
    hn::StoreU(hn::Mul(normed, Silu(hn::LoadU(d, gate + i))), d, y + i);
  }
  if (i < width) {
    const size_t rest = width - i;
    const V normed = hn::Mul(hn::Mul(LoadPartial(x + i, rest), scale), LoadPartial(weight + i, rest));
    StorePartial(hn::Mul(normed, Silu(LoadPartial(gate + i, rest))), y + i, rest);
  }
}

// y = x · silu(gate)
void GateGroup(const float* x, const float* gate, float* y, size_t width) {
  Map2(x, gate, y, width, [](V a, V g) HWY_ATTR { return hn::Mul(a, Silu(g)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(NormGroup);
HWY_EXPORT(GateGroup);

void RmsNormCpu(const RmsNormArgs& args, Stream& stream) {
  const int64_t width = args.width();
  const int64_t columns = args.x.row_size();
  WEIR_CHECK(columns % width == 0 && (args.weight.dim(0) == width || args.weight.dim(0) == columns));
  const auto norm = HWY_DYNAMIC_DISPATCH(NormGroup);
  const auto apply_gate = HWY_DYNAMIC_DISPATCH(GateGroup);
  const int64_t cost = columns * (args.gate.empty() ? 2 : 12);
  ParallelRows(PoolOf(stream), args.x.num_rows(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = args.gate.empty() ? nullptr : args.gate.row<float>(t);
      for (int64_t c = 0; c < columns; c += width) {
        const float* weight = args.weight.data<float>() + (args.weight.dim(0) == width ? 0 : c);
        const float* x = args.x.row<float>(t) + c;
        float* y = args.y.row<float>(t) + c;
        if (gate != nullptr && args.gate_first) {
          apply_gate(x, gate + c, y, static_cast<size_t>(width));
          norm(y, weight, nullptr, y, static_cast<size_t>(width), args.eps);
        } else {
          norm(x, weight, gate == nullptr ? nullptr : gate + c, y, static_cast<size_t>(width), args.eps);
        }
      }
    }
  });
}

}  // namespace weir
#endif  // HWY_ONCE
