// Vector helpers shared by the CPU kernels, compiled once per target by Highway's foreach_target.h: partial
// vectors at the end of a row, sums in a fixed order, and the functions that activations are made of.
#if defined(WEIR_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_SIMD_MATH_INL_H_
#undef WEIR_SIMD_MATH_INL_H_
#else
#define WEIR_SIMD_MATH_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// The first `count` (fewer than a vector) elements, zero beyond. Never touches memory outside of them.
HWY_INLINE V LoadPartial(const float* from, size_t count) {
  const F32 d;
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(lanes, from, count * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void StorePartial(V v, float* to, size_t count) {
  const F32 d;
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(float));
}

// y[i] = function(i-th vectors of the inputs), the tail included.
template <class Function>
HWY_INLINE void Map1(const float* a, float* y, size_t count, Function function) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(function(hn::LoadU(d, a + i)), d, y + i);
  if (i < count) StorePartial(function(LoadPartial(a + i, count - i)), y + i, count - i);
}

template <class Function>
HWY_INLINE void Map2(const float* a, const float* b, float* y, size_t count, Function function) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  if (i < count)
    StorePartial(function(LoadPartial(a + i, count - i), LoadPartial(b + i, count - i)), y + i, count - i);
}

// sum of function(i-th vectors); function(0, 0) must be 0. The order depends on `count` alone.
template <class Function>
HWY_INLINE float Sum2(const float* a, const float* b, size_t count, Function function) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    sum0 = hn::Add(sum0, function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)));
    sum1 = hn::Add(sum1, function(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes)));
  }
  if (i + lanes <= count) {
    sum0 = hn::Add(sum0, function(hn::LoadU(d, a + i), hn::LoadU(d, b + i)));
    i += lanes;
  }
  if (i < count) sum1 = hn::Add(sum1, function(LoadPartial(a + i, count - i), LoadPartial(b + i, count - i)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

// x · sigmoid(x) through exp(-|x|), which cannot overflow. NaN stays NaN.
HWY_INLINE V Silu(V x) {
  const F32 d;
  const V one = hn::Set(d, 1.0f);
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));
}

// log(1 + exp(x)) through exp(-|x|), which cannot overflow. NaN stays NaN.
HWY_INLINE V Softplus(V x) {
  const F32 d;
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V positive = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
  return hn::Add(positive, hn::Log1p(d, e));
}

// elu(x) + 1; NaN fails the comparison and stays NaN.
HWY_INLINE V EluPlusOne(V x) {
  const F32 d;
  const V zero = hn::Zero(d);
  const V negative = hn::Exp(d, hn::Min(x, zero));
  return hn::IfThenElse(hn::Le(x, zero), negative, hn::Add(x, hn::Set(d, 1.0f)));
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
