// A whole chunk of C = kChunkTokens tokens as matrix products (the chunk form of Katharopoulos et al. 2020,
// as in Yang et al. 2023; with a decay, the state-space duality of Dao & Gu 2024): with A_t the product of
// the decays up to and with token t of the chunk, O = (diag(A) Q S + (tril(Q Kᵀ) ∘ A_t / A_s) V) · factor,  S
// ← A_C S + (A_C / A_s Kᵀ) V.
#if defined(WEIR_RECURRENCE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_RECURRENCE_CHUNK_INL_H_
#undef WEIR_RECURRENCE_CHUNK_INL_H_
#else
#define WEIR_RECURRENCE_CHUNK_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

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

// The decays of a chunk, each a product over the tokens in between, taken as a difference of sums of
// logarithms: sums in double, so that the difference of two large ones is exact enough.
struct ChunkDecay {
  double log_sum[kChunkTokens];    // of tokens 0 … t
  float from_start[kChunkTokens];  // A_t
  float to_end[kChunkTokens];      // A_C / A_t
  float whole = 1.0f;              // A_C

  ChunkDecay(const RecurrenceHead& head, int64_t token) {
    double sum = 0.0;
    for (int64_t t = 0; t < kChunkTokens; ++t) {
      sum += static_cast<double>(head.LogDecay(token + t));
      log_sum[t] = sum;
    }
    for (int64_t t = 0; t < kChunkTokens; ++t) {
      from_start[t] = std::exp(static_cast<float>(log_sum[t]));
      to_end[t] = std::exp(static_cast<float>(sum - log_sum[t]));
    }
    whole = from_start[kChunkTokens - 1];
  }

  // row[s] *= A_t / A_s for s <= t.
  HWY_INLINE void Weigh(int64_t t, float* row) const {
    HWY_ALIGN float between[kChunkTokens];
    for (int64_t s = 0; s <= t; ++s) between[s] = static_cast<float>(log_sum[t] - log_sum[s]);
    Map2(row, between, row, static_cast<size_t>(t + 1),
         [](V weight, V log) HWY_ATTR { return hn::Mul(weight, hn::Exp(F32(), log)); });
  }
};

// o of one query head r. state, z: the values before the chunk; weights: scratch
// [kChunkTokens][kChunkTokens]. k_transposed: [state_dim][kChunkTokens].
HWY_INLINE void ChunkOutputs(const RecurrenceHead& head, int64_t token, int r, const ChunkDecay* decay,
                             const float* state, const float* z, const float* k_transposed, float* weights) {
  constexpr int64_t kTokens = kChunkTokens;
  const int64_t state_dim = head.state_dim;
  const int64_t head_dim = head.head_dim;
  const float* q = head.q + token * head.q_stride + r * state_dim;
  const float* v = head.v + token * head.v_stride;
  float* o = head.o + token * head.o_stride + r * head_dim;
  float factor[kTokens];
  Multiply({kTokens, kTokens, state_dim, q, head.q_stride, 1, k_transposed, kTokens, weights, kTokens},
           Triangle::kLowerOutput);
  for (int64_t t = 0; t < kTokens; ++t) {
    float* row = weights + t * kTokens;
    const int64_t computed = std::min(kTokens, t / kProductRows * kProductRows + kProductRows);
    std::fill(row + t + 1, row + computed, 0.0f);
    if (decay != nullptr) decay->Weigh(t, row);
    factor[t] = head.scale;
    if (head.z_inner == nullptr) continue;
    // φ(q)ᵀ z after token t: the state before, and the weights of the chunk's own tokens.
    const float own = Sum2(row, row, static_cast<size_t>(t + 1), [](V a, V) HWY_ATTR { return a; });
    const float before = Dot(q + t * head.q_stride, z, static_cast<size_t>(state_dim));
    factor[t] = 1.0f / ((decay == nullptr ? before : before * decay->from_start[t]) + own + head.eps);
  }
  Product from_state = {kTokens, head_dim, state_dim, q, head.q_stride, 1, state, head_dim, o, head.o_stride};
  if (decay != nullptr) from_state.row_factor = decay->from_start;
  Multiply(from_state, Triangle::kNone);
  Multiply(
      {kTokens, head_dim, kTokens, weights, kTokens, 1, v, head.v_stride, o, head.o_stride, true, factor},
      Triangle::kLowerInput);
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
  // Of two levels the sum; of one, itself.
  const auto value = [](const float* inner, const float* outer, float* sum, int64_t count) HWY_ATTR {
    if (outer == nullptr)
      std::memcpy(sum, inner, static_cast<size_t>(count) * sizeof(float));
    else
      Map2(inner, outer, sum, static_cast<size_t>(count), [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
  };
  const float* k = head.k + token * head.k_stride;
  value(head.s_inner, head.s_outer, state, state_dim * head_dim);
  if (head.z_inner != nullptr) value(head.z_inner, head.z_outer, z, state_dim);
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t i = 0; i < state_dim; ++i) k_transposed[i * kTokens + t] = k[t * head.k_stride + i];

  std::optional<ChunkDecay> decay;
  if (head.log_decay != nullptr) decay.emplace(head, token);
  for (int r = 0; r < head.queries; ++r)
    ChunkOutputs(head, token, r, decay ? &*decay : nullptr, state, z, k_transposed, weights);

  if (decay) {
    if (decay->whole != 1.0f) ScaleHead(head, decay->whole);
    for (int64_t i = 0; i < state_dim; ++i)
      Map2(k_transposed + i * kTokens, decay->to_end, k_transposed + i * kTokens,
           static_cast<size_t>(kTokens), [](V a, V b) HWY_ATTR { return hn::Mul(a, b); });
  }
  for (int64_t i = 0; i < state_dim && head.z_inner != nullptr; ++i)
    head.z_inner[i] += Sum2(k_transposed + i * kTokens, k_transposed + i * kTokens,
                            static_cast<size_t>(kTokens), [](V a, V) HWY_ATTR { return a; });
  Multiply({state_dim, head_dim, kTokens, k_transposed, kTokens, 1, head.v + token * head.v_stride,
            head.v_stride, head.s_inner, head_dim, true},
           Triangle::kNone);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
