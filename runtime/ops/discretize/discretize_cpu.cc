#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/discretize/discretize_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/discretize/discretize.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// One token. log_decay holds Δ in between: [heads].
void DiscretizeToken(const DiscretizeArgs& args, int64_t t, size_t heads, size_t head_dim) {
  const F32 d;
  const V min_dt = hn::Set(d, args.min_dt);
  const V max_dt = hn::Set(d, args.max_dt);
  float* delta = args.log_decay.row<float>(t);
  Map2(args.dt.row<float>(t), args.bias.data<float>(), delta, heads, [=](V dt, V bias) HWY_ATTR {
    const V value = Softplus(hn::Add(dt, bias));
    // Comparisons that a NaN fails, so that it stays.
    return hn::IfThenElse(hn::Lt(value, min_dt), min_dt,
                          hn::IfThenElse(hn::Gt(value, max_dt), max_dt, value));
  });
  for (size_t h = 0; h < heads; ++h) {
    const V factor = hn::Set(d, delta[h]);
    const auto scale = [factor](V x) HWY_ATTR { return hn::Mul(x, factor); };
    Map1(args.x.row<float>(t) + h * head_dim, args.v.row<float>(t) + h * head_dim, head_dim, scale);
  }
  Map2(delta, args.a.data<float>(), delta, heads, [](V dt, V a) HWY_ATTR { return hn::Mul(dt, a); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(DiscretizeToken);

void DiscretizeCpu(const DiscretizeArgs& args, Stream& stream) {
  const int64_t heads = args.bias.dim(0);
  WEIR_CHECK(args.x.row_size() % heads == 0 && args.dt.row_size() == heads);
  const auto token = HWY_DYNAMIC_DISPATCH(DiscretizeToken);
  ParallelRows(PoolOf(stream), args.x.num_rows(), args.x.row_size() + 10 * heads,
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t)
                   token(args, t, static_cast<size_t>(heads), static_cast<size_t>(args.x.row_size() / heads));
               });
}

}  // namespace weir
#endif  // HWY_ONCE
