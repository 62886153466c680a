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

// 2^n · 2^f for a whole number n (`shifted` is n + kExp2Magic) and |f| <= 1/2, relative error below 2e-7: a
// minimax polynomial whose constant term is exactly 1, so that 2^0 is 1. NaN stays NaN.
inline constexpr float kExp2Magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number
template <class DF>
HWY_INLINE hn::Vec<DF> Exp2OfParts(DF d, hn::Vec<DF> shifted, hn::Vec<DF> f) {
  auto p = hn::Set(d, 0.0013264728477224708f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671513922512531f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<DF>{_mm512_scalef_ps(p.raw, hn::Sub(shifted, hn::Set(d, kExp2Magic)).raw)};
#else
  // A multiplication rather than an addition of exponents: NaN times anything is NaN.
  const hn::RebindToSigned<DF> di;
  const auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 0x3f800000));
  return hn::Mul(p, hn::BitCast(d, exponent));
#endif
}

// Exponents that are zero, at least where denormals are flushed.
#if HWY_TARGET == HWY_AVX3
constexpr float kExp2Zero = -151.0f;
#else
constexpr float kExp2Zero = -127.0f;
#endif

// 2^x for x <= 0: Cody-Waite reduction. Results below 2^-126 may be zero. NaN stays NaN.
template <class DF>
HWY_INLINE hn::Vec<DF> Exp2NonPositive(DF d, hn::Vec<DF> x) {
  const auto magic = hn::Set(d, kExp2Magic);
  x = hn::Max(hn::Set(d, kExp2Zero), x);  // this order keeps NaN on x86
  const auto shifted = hn::Add(x, magic);
  return Exp2OfParts(d, shifted, hn::Sub(x, hn::Sub(shifted, magic)));
}

// exp(x) for x <= 0, as exact for large x as for small: ln 2 is subtracted in two parts.
HWY_INLINE V ExpNonPositive(V x) {
  const F32 d;
  const V magic = hn::Set(d, kExp2Magic);
  const V log2e = hn::Set(d, 1.4426950408889634f);
  x = hn::Max(hn::Set(d, kExp2Zero * 0.6931f), x);
  const V shifted = hn::MulAdd(x, log2e, magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  return Exp2OfParts(d, shifted, hn::Mul(r, log2e));
}

// log(1 + exp(x)); NaN stays NaN.
HWY_INLINE V Softplus(V x) {
  const F32 d;
  const V zero = hn::Zero(d);
  const V rest = hn::Log1p(d, ExpNonPositive(hn::Neg(hn::Abs(x))));
  return hn::Add(hn::IfThenElse(hn::Gt(x, zero), x, zero), rest);
}

// x · sigmoid(x) through exp(-|x|), which cannot overflow. NaN stays NaN.
HWY_INLINE V Silu(V x) {
  const F32 d;
  const V one = hn::Set(d, 1.0f);
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));
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
