#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/skip/skip_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/simd_math-inl.h"
#include "runtime/ops/skip/skip.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

void SkipHead(const float* x, float d, float* y, size_t head_dim) {
  const V factor = hn::Set(F32(), d);
  Map2(x, y, y, head_dim, [factor](V a, V b) HWY_ATTR { return hn::MulAdd(factor, a, b); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(SkipHead);

void SkipCpu(const SkipArgs& args, Stream& stream) {
  const int64_t heads = args.d.dim(0);
  const int64_t columns = args.x.row_size();
  WEIR_CHECK(columns % heads == 0 && args.y.row_size() == columns);
  const int64_t head_dim = columns / heads;
  const auto skip = HWY_DYNAMIC_DISPATCH(SkipHead);
  ParallelRows(PoolOf(stream), args.x.num_rows(), columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < heads; ++h)
        skip(args.x.row<float>(t) + h * head_dim, args.d.data<float>()[h],
             args.y.row<float>(t) + h * head_dim, static_cast<size_t>(head_dim));
  });
}

}  // namespace weir
#endif  // HWY_ONCE
