// A whole chunk of C = kChunkTokens tokens as matrix products (the chunk form of Katharopoulos et al. 2020,
// as in Yang et al. 2023): O = (Q S + tril(Q Kᵀ) V) · factor,  S ← S + Kᵀ V.
#if defined(WEIR_RECURRENCE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_RECURRENCE_CHUNK_INL_H_
#undef WEIR_RECURRENCE_CHUNK_INL_H_
#else
#define WEIR_RECURRENCE_CHUNK_INL_H_
#endif

#include <algorithm>

#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "runtime/ops/linear_recurrence/step-inl.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// y = (y where accumulate) + a b, then row m times row_factor[m] where there is one. Element (m, k) of a lies
// at a[m * a_row + k * a_column]; b and y are row-major.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_column = 0;
  const float* b = nullptr;
  int64_t b_row = 0;
  float* y = nullptr;
  int64_t y_row = 0;
  bool accumulate = false;
  const float* row_factor = nullptr;
};

// Rows that share each load of b.
constexpr int kProductRows = 4;
constexpr int kProductVectors = HWY_MAX_BYTES >= 64 ? 4 : 2;

// k_end: terms of the sum, for triangular a.
template <int kRows, int kVectors, bool kPartial>
HWY_INLINE void ProductTile(const Product& p, int64_t row, int64_t column, int64_t k_end, size_t count) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kRows * kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n)
      sum[r * kVectors + n] =
          p.accumulate ? LoadColumns<kPartial>(p.y + (row + r) * p.y_row + column + n * lanes, count)
                       : hn::Zero(d);
  }
  const float* a = p.a + row * p.a_row;
  for (int64_t k = 0; k < k_end; ++k) {
    const float* b = p.b + k * p.b_row + column;
    V vb[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) vb[n] = LoadColumns<kPartial>(b + n * lanes, count);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V va = hn::Set(d, a[r * p.a_row + k * p.a_column]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) sum[r * kVectors + n] = hn::MulAdd(va, vb[n], sum[r * kVectors + n]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(d, p.row_factor == nullptr ? 1.0f : p.row_factor[row + r]);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n)
      StoreColumns<kPartial>(hn::Mul(sum[r * kVectors + n], factor),
                             p.y + (row + r) * p.y_row + column + n * lanes, count);
  }
}

template <int kRows>
HWY_INLINE void ProductRows(const Product& p, int64_t row, int64_t n_end, int64_t k_end) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + kProductVectors * lanes <= n_end; column += kProductVectors * lanes)
    ProductTile<kRows, kProductVectors, false>(p, row, column, k_end, 0);
  for (; column + lanes <= n_end; column += lanes) ProductTile<kRows, 1, false>(p, row, column, k_end, 0);
  if (column < n_end) ProductTile<kRows, 1, true>(p, row, column, k_end, static_cast<size_t>(n_end - column));
}

// kLowerOutput: columns beyond the row (block) are not computed. kLowerInput: a is zero there.
enum class Triangle { kNone, kLowerOutput, kLowerInput };

HWY_INLINE void Multiply(const Product& p, Triangle triangle) {
  for (int64_t row = 0; row < p.m;) {
    const int64_t rows = p.m - row >= kProductRows ? kProductRows : 1;
    const int64_t n_end = triangle == Triangle::kLowerOutput ? std::min(p.n, row + rows) : p.n;
    const int64_t k_end = triangle == Triangle::kLowerInput ? std::min(p.k, row + rows) : p.k;
    if (rows == kProductRows)
      ProductRows<kProductRows>(p, row, n_end, k_end);
    else
      ProductRows<1>(p, row, n_end, k_end);
    row += rows;
  }
}

// One whole chunk from `token`; a due fold is done. scratch: [ChunkScratchElements].
void ChunkTokens(const RecurrenceHead& head, int64_t token, float* scratch) {
  constexpr int64_t kTokens = kChunkTokens;
  const int64_t state_dim = head.state_dim;
  const int64_t head_dim = head.head_dim;
  float* state = scratch;                               // S before the chunk: [state_dim][head_dim]
  float* k_transposed = state + state_dim * head_dim;   // [state_dim][kTokens]
  float* weights = k_transposed + state_dim * kTokens;  // tril(Q Kᵀ): [kTokens][kTokens]
  float* z = weights + kTokens * kTokens;               // z before the chunk: [state_dim]
  float* factor = z + state_dim;                        // [kTokens]
  const auto add = [](V a, V b) HWY_ATTR { return hn::Add(a, b); };
  const float* k = head.k + token * head.k_stride;
  const float* v = head.v + token * head.v_stride;

  Map2(head.s_inner, head.s_outer, state, static_cast<size_t>(state_dim * head_dim), add);
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t i = 0; i < state_dim; ++i) k_transposed[i * kTokens + t] = k[t * head.k_stride + i];
  if (head.z_inner != nullptr) {
    Map2(head.z_inner, head.z_outer, z, static_cast<size_t>(state_dim), add);
    for (int64_t t = 0; t < kTokens; ++t)
      Map2(head.z_inner, k + t * head.k_stride, head.z_inner, static_cast<size_t>(state_dim), add);
  }
  for (int r = 0; r < head.queries; ++r) {
    const float* q = head.q + token * head.q_stride + r * state_dim;
    float* o = head.o + token * head.o_stride + r * head_dim;
    Multiply({kTokens, kTokens, state_dim, q, head.q_stride, 1, k_transposed, kTokens, weights, kTokens},
             Triangle::kLowerOutput);
    for (int64_t t = 0; t < kTokens; ++t) {
      float* row = weights + t * kTokens;
      const int64_t computed = std::min(kTokens, t / kProductRows * kProductRows + kProductRows);
      std::fill(row + t + 1, row + computed, 0.0f);
      factor[t] = head.scale;
      if (head.z_inner == nullptr) continue;
      // φ(q)ᵀ z after token t: the state before, and the weights of the chunk's own tokens.
      const float own = Sum2(row, row, static_cast<size_t>(t + 1), [](V a, V) HWY_ATTR { return a; });
      factor[t] = 1.0f / (Dot(q + t * head.q_stride, z, static_cast<size_t>(state_dim)) + own + head.eps);
    }
    Multiply({kTokens, head_dim, state_dim, q, head.q_stride, 1, state, head_dim, o, head.o_stride},
             Triangle::kNone);
    Multiply(
        {kTokens, head_dim, kTokens, weights, kTokens, 1, v, head.v_stride, o, head.o_stride, true, factor},
        Triangle::kLowerInput);
  }
  Multiply(
      {state_dim, head_dim, kTokens, k, 1, head.k_stride, v, head.v_stride, head.s_inner, head_dim, true},
      Triangle::kNone);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
