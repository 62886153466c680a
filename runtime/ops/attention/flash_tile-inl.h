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

#include "hwy/highway.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/simd_math-inl.h"
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
// Rows whose scores are made before any is used: the longer, the more latency of the softmax is hidden.
constexpr int kRowChunk = 16;
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

// 2^x for x <= 0, clamped at -125: the largest weights of a row are near 1, so smaller ones add nothing.
HWY_INLINE V Exp2(D d, V x) {
  x = hn::Max(hn::Set(d, -125.0f), x);  // this order keeps NaN on x86
  const V magic = hn::Set(d, kExp2Magic);
  const V shifted = hn::Add(x, magic);
  return Exp2OfParts(d, shifted, hn::Sub(x, hn::Sub(shifted, magic)));
}

// Into the L2 cache only: more such requests may be under way than fills of the L1 cache.
HWY_INLINE void PrefetchToL2(const void* p) { __builtin_prefetch(p, 0, 2); }

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
      if (kAhead && v * kLanes * sizeof(T) % 64 == 0) PrefetchToL2(ahead + v * kLanes);
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

HWY_INLINE hn::Mask<D> ValidKeys(D d, int first, int valid) {
  return hn::FirstN(d, std::max(valid - first, 0));
}

// Turns `num_rows` rows of scores [kKeys], already times log2 e, into weights relative to each row's new
// maximum, zero from valid[row] on. factors[row] brings the row's older sums to that maximum. sums: 16 lanes
// and then the maximum of each row, rows `stride` apart. Row by row in three passes, so that latencies
// overlap.
HWY_INLINE void SoftmaxRows(int num_rows, const int* valid, float* scores, float* sums, int stride,
                            float* factors) {
  const D d;
  const V low = hn::Set(d, -std::numeric_limits<float>::infinity());
  HWY_ALIGN float old_max[kRowChunk];
  HWY_ALIGN float new_max[kRowChunk];
  for (int r = 0; r < kRowChunk; ++r) old_max[r] = new_max[r] = 0.0f;
  for (int r = 0; r < num_rows; ++r) {
    const float* row = scores + r * kKeys;
    V max = low;
    if (valid[r] == kKeys) {
      HWY_UNROLL(4)
      for (int i = 0; i < kKeys; i += kLanes) max = hn::Max(max, hn::LoadU(d, row + i));
    } else {
      for (int i = 0; i < kKeys; i += kLanes)
        max = hn::Max(max, hn::IfThenElse(ValidKeys(d, i, valid[r]), hn::LoadU(d, row + i), low));
    }
    old_max[r] = sums[r * stride + 16];
    new_max[r] = std::max(old_max[r], hn::GetLane(hn::MaxOfLanes(d, max)));
    sums[r * stride + 16] = new_max[r];
  }
  for (int r = 0; r < kRowChunk; r += kLanes)
    hn::Store(Exp2(d, hn::Sub(hn::Load(d, old_max + r), hn::Load(d, new_max + r))), d, factors + r);
  for (int r = 0; r < num_rows; ++r) {
    float* row = scores + r * kKeys;
    const V max = hn::Set(d, new_max[r]);
    V total = hn::Zero(d);
    HWY_UNROLL(4)
    for (int i = 0; i < kKeys; i += kLanes) {
      V p = Exp2(d, hn::Sub(hn::LoadU(d, row + i), max));
      if (valid[r] != kKeys) p = hn::IfThenElseZero(ValidKeys(d, i, valid[r]), p);
      hn::StoreU(p, d, row + i);
      total = hn::Add(total, p);
    }
    float* sum = sums + r * stride;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum), hn::Set(d, factors[r]), total), d, sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // include guard
