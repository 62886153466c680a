#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/feature_map/elu_plus_one_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

void EluPlusOneRow(const float* x, float* y, size_t count) {
  Map1(x, y, count, [](V v) HWY_ATTR { return EluPlusOne(v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(EluPlusOneRow);

void EluPlusOneCpu(const EluPlusOneArgs& args, Stream& stream) {
  const int64_t columns = args.x.row_size();
  const auto row = HWY_DYNAMIC_DISPATCH(EluPlusOneRow);
  ParallelRows(PoolOf(stream), args.x.num_rows(), columns * 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      row(args.x.row<float>(t), args.y.row<float>(t), static_cast<size_t>(columns));
  });
}

}  // namespace weir
#endif  // HWY_ONCE
