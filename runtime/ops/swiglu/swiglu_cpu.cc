#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/swiglu/swiglu_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/simd_math-inl.h"
#include "runtime/ops/swiglu/swiglu.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

void SwiGluRow(const float* gate, const float* up, float* y, size_t count) {
  Map2(gate, up, y, count, [](V g, V u) HWY_ATTR { return hn::Mul(Silu(g), u); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(SwiGluRow);

void SwiGluCpu(const SwiGluArgs& args, Stream& stream) {
  const int64_t columns = args.gate.row_size();
  const auto row = HWY_DYNAMIC_DISPATCH(SwiGluRow);
  ParallelRows(PoolOf(stream), args.gate.num_rows(), columns * 10, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      row(args.gate.row<float>(t), args.up.row<float>(t), args.y.row<float>(t), static_cast<size_t>(columns));
  });
}

}  // namespace weir
#endif  // HWY_ONCE
