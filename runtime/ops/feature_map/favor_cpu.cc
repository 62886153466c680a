#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/feature_map/favor_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// Vectors of features that share each element of x.
constexpr int kFavorVectors = 4;

// y[first …] = root · (x W) − offset for `kVectors` whole vectors of features, or the first `count` of one.
template <int kVectors, bool kPartial>
HWY_INLINE void Exponents(const float* x, const TensorView& features, float root, float offset, int64_t first,
                          size_t count, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stride = features.row_stride();
  const float* w = features.data<float>() + first;
  V sum[kVectors];
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) sum[n] = hn::Zero(d);
  for (int64_t j = 0; j < features.dim(0); ++j, w += stride) {
    const V vx = hn::Set(d, x[j]);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const V weight = kPartial ? LoadPartial(w, count) : hn::LoadU(d, w + n * lanes);
      sum[n] = hn::MulAdd(vx, weight, sum[n]);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < kVectors; ++n) {
    const V e = hn::Sub(hn::Mul(sum[n], hn::Set(d, root)), hn::Set(d, offset));
    if (kPartial)
      StorePartial(e, y + first, count);
    else
      hn::StoreU(e, d, y + first + n * lanes);
  }
}

// The exponents e of one token and head into y [num_features]; root = head_dim^(-1/4).
void FavorExponents(const float* x, const TensorView& features, float root, float* y) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t num_features = features.dim(1);
  const float square =
      Sum2(x, x, static_cast<size_t>(features.dim(0)), [](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
  const float offset = square * root * root / 2.0f;
  int64_t i = 0;
  for (; i + kFavorVectors * lanes <= num_features; i += kFavorVectors * lanes)
    Exponents<kFavorVectors, false>(x, features, root, offset, i, 0, y);
  for (; i + lanes <= num_features; i += lanes) Exponents<1, false>(x, features, root, offset, i, 0, y);
  if (i < num_features)
    Exponents<1, true>(x, features, root, offset, i, static_cast<size_t>(num_features - i), y);
}

// y = exp(y − maximum) · scale
void FavorExp(float* y, size_t num_features, float maximum, float scale) {
  const F32 d;
  const V m = hn::Set(d, maximum);
  const V s = hn::Set(d, scale);
  Map1(y, y, num_features, [=](V e) HWY_ATTR { return hn::Mul(hn::Exp(d, hn::Sub(e, m)), s); });
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {
namespace {

HWY_EXPORT(FavorExponents);
HWY_EXPORT(FavorExp);

// One head of the run n.
void FavorHead(const FavorArgs& args, int64_t n, int64_t h) {
  const auto exponents = HWY_DYNAMIC_DISPATCH(FavorExponents);
  const auto exp = HWY_DYNAMIC_DISPATCH(FavorExp);
  const int64_t head_dim = args.features.dim(0);
  const int64_t num_features = args.features.dim(1);
  const float root = std::pow(static_cast<float>(head_dim), -0.25f);
  const float scale = 1.0f / std::sqrt(static_cast<float>(num_features));
  const int32_t first = args.batch.cu_seqlens.data<int32_t>()[n];
  const int32_t end = args.batch.cu_seqlens.data<int32_t>()[n + 1];
  float* running =
      args.maximum.empty() ? nullptr : args.maximum.row<float>(args.batch.slots.data<int32_t>()[n]) + h;
  bool begins = args.batch.positions.data<int64_t>()[n] == 0;
  for (int32_t t = first; t < end; ++t, begins = false) {
    float* y = args.y.row<float>(t) + h * num_features;
    exponents(args.x.row<float>(t) + h * head_dim, args.features, root, y);
    float m = *std::max_element(y, y + num_features);
    if (running != nullptr) {
      if (!begins) m = std::max(m, *running);
      args.log_decay.row<float>(t)[h] = begins ? 0.0f : *running - m;
      *running = m;
    }
    exp(y, static_cast<size_t>(num_features), m, scale);
  }
}

}  // namespace

void FavorCpu(const FavorArgs& args, Stream& stream) {
  const int64_t heads = args.num_heads;
  WEIR_CHECK(args.maximum.empty() == args.log_decay.empty());
  WEIR_CHECK(args.x.row_size() == heads * args.features.dim(0) &&
             args.y.row_size() == heads * args.features.dim(1));
  const int64_t cost =
      std::max(1, args.batch.max_seq_tokens) * args.features.dim(1) * (args.features.dim(0) / 8 + 2);
  ParallelRows(PoolOf(stream), args.batch.num_seqs * heads, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) FavorHead(args, i / heads, i % heads);
  });
}

}  // namespace weir
#endif  // HWY_ONCE
