// Register tiles of flash attention for one instruction set: C += A · B with B read in its storage type, the
// exponential, and one step of the online softmax. Included once per Highway target.

#if defined(WEIR_RUNTIME_OPS_ATTENTION_FLASH_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_RUNTIME_OPS_ATTENTION_FLASH_TILE_INL_H_
#undef WEIR_RUNTIME_OPS_ATTENTION_FLASH_TILE_INL_H_
#else
#define WEIR_RUNTIME_OPS_ATTENTION_FLASH_TILE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
// 6 rows × 4 vectors of accumulators fill 32 registers, 6 × 2 fill 16; more rows than 4 hide the FMA latency.
constexpr int kRowTile = 6;
constexpr int kVecTile = kLanes == 16 ? 4 : 2;
constexpr int kKeys = kKvBlockTokens;

template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const float* p) {
  return hn::LoadU(d, p);
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const BF16* p) {
  const hn::Rebind<hwy::bfloat16_t, DF> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(p)));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF d, const F16* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  const auto v = hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#if HWY_TARGET >= HWY_SSE4
  // Without F16C, Highway reads infinities and NaN as large numbers.
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, v);
  const auto special = hn::Ge(hn::Abs(v), hn::Set(d, 65536.0f));
  return hn::IfThenElse(special, hn::BitCast(d, hn::Or(bits, hn::Set(du, 0x7f800000u))), v);
#else
  return v;
#endif
}

// 2^x for x <= 0, clamped at -125, relative error below 2e-7: Cody-Waite reduction by adding 1.5 · 2^23 and a
// minimax polynomial whose constant term is exactly 1, so that 2^0 is 1.
HWY_INLINE V Exp2(D d, V x) {
  [[maybe_unused]] const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f);
  x = hn::Max(hn::Set(d, -125.0f), x);  // this order keeps NaN on x86
  const V shifted = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(shifted, magic));
  V p = hn::Set(d, 0.0013264728477224708f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.009671513922512531f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931470036506653f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_scalef_ps(p.raw, hn::Sub(shifted, magic).raw)};
#else
  // A multiplication rather than an addition of exponents: NaN times anything is NaN.
  const auto exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 0x3f800000));
  return hn::Mul(p, hn::BitCast(d, exponent));
#endif
}

// C[kRows, kVecs · lanes] = scale[row] · C + A · B, or A · B when kFresh. Each element is one chain of FMAs
// in the order of `depth`, so it depends neither on kRows nor on kVecs. B's rows are `ldb` elements apart.
// `ahead`, when kAhead, is memory laid out as B is, fetched in the same rhythm for the next call.
template <int kRows, int kVecs, bool kFresh, bool kAhead, class T>
HWY_INLINE void MultiplyTile(const float* a, size_t lda, const T* b, size_t ldb, int depth,
                             const float* scale, float* c, size_t ldc, const T* ahead) {
  const D d;
  V acc[kRows][kVecs];
  HWY_UNROLL(kRowTile)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] =
          kFresh ? hn::Zero(d) : hn::Mul(hn::Set(d, scale[r]), hn::LoadU(d, c + r * ldc + v * kLanes));
    }
  }
  for (int k = 0; k < depth; ++k) {
    V bv[kVecs];
    HWY_UNROLL(4)
    for (int v = 0; v < kVecs; ++v) {
      bv[v] = LoadF32(d, b + v * kLanes);
      if (kAhead && v * kLanes * sizeof(T) % 64 == 0) hwy::Prefetch(ahead + v * kLanes);
    }
    HWY_UNROLL(kRowTile)
    for (int r = 0; r < kRows; ++r) {
      const V av = hn::Set(d, a[r * lda + k]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(av, bv[v], acc[r][v]);
    }
    b += ldb;
    if (kAhead) ahead += ldb;
  }
  HWY_UNROLL(kRowTile)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVecs; ++v) hn::StoreU(acc[r][v], d, c + r * ldc + v * kLanes);
  }
}

// Turns one row of scores (already times log2 e) of a block into weights relative to the row's new maximum,
// zero from `valid` on, and returns the factor that brings the row's older sums to that maximum.
// sum: 16 lanes; max: one float.
HWY_INLINE float SoftmaxRow(float* scores, int valid, float* sum, float* max) {
  const D d;
  const V low = hn::Set(d, -std::numeric_limits<float>::infinity());
  V block_max = low;
  for (int i = 0; i < kKeys; i += kLanes) {
    V s = hn::LoadU(d, scores + i);
    if (valid < i + kLanes) s = hn::IfThenElse(hn::FirstN(d, std::max(valid - i, 0)), s, low);
    block_max = hn::Max(block_max, s);
  }
  const float old_max = *max;
  const float new_max = std::max(old_max, hn::GetLane(hn::MaxOfLanes(d, block_max)));
  const V shift = hn::Set(d, new_max);
  V total = hn::Zero(d);
  for (int i = 0; i < kKeys; i += kLanes) {
    V p = Exp2(d, hn::Sub(hn::LoadU(d, scores + i), shift));
    if (valid < i + kLanes) p = hn::IfThenElseZero(hn::FirstN(d, std::max(valid - i, 0)), p);
    hn::StoreU(p, d, scores + i);
    total = hn::Add(total, p);
  }
  const V factor = old_max == new_max ? hn::Set(d, 1.0f) : Exp2(d, hn::Sub(hn::Set(d, old_max), shift));
  hn::StoreU(hn::MulAdd(hn::LoadU(d, sum), factor, total), d, sum);
  *max = new_max;
  return hn::GetLane(factor);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // include guard
