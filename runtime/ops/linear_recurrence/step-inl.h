// Token after token: S_inner is read and written once and S_outer read once per pass over a few tokens.
#if defined(WEIR_RECURRENCE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_RECURRENCE_STEP_INL_H_
#undef WEIR_RECURRENCE_STEP_INL_H_
#else
#define WEIR_RECURRENCE_STEP_INL_H_
#endif

#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// Tokens that share one pass over the state. Each element still sees the tokens one by one in the same order,
// so the result has the same bits as one token a pass.
constexpr int kStepTokens = 4;

// Accumulators that fit the register file beside the operands.
constexpr int kStepAccumulators = HWY_MAX_BYTES >= 64 ? 16 : 8;

// Whole vectors of a row, or the first `count` lanes of one.
template <bool kPartial>
HWY_INLINE V LoadColumns(const float* from, size_t count) {
  return kPartial ? LoadPartial(from, count) : hn::LoadU(F32(), from);
}
template <bool kPartial>
HWY_INLINE void StoreColumns(V v, float* to, size_t count) {
  if (kPartial)
    StorePartial(v, to, count);
  else
    hn::StoreU(v, F32(), to);
}

// `kTokens` tokens from `token`, `kQueries` query heads from `query`, `kVectors` vectors of columns from
// `column` (of which `count` columns exist where kPartial). factor: [kTokens][queries].
template <int kTokens, int kQueries, int kVectors, bool kUpdate, bool kPartial>
HWY_INLINE void StepTile(const RecurrenceHead& head, int64_t token, int query, int64_t column, size_t count,
                         const float* factor) {
  static_assert(kUpdate || kTokens == 1, "later queries would see the state of the last token");
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* k[kTokens];
  const float* q[kTokens];
  V v[kTokens * kVectors];
  V sum[kTokens * kQueries * kVectors];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    k[t] = head.k + (token + t) * head.k_stride;
    q[t] = head.q + (token + t) * head.q_stride + query * head.state_dim;
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      const float* from = head.v + (token + t) * head.v_stride + column + n * lanes;
      v[t * kVectors + n] = LoadColumns<kPartial>(from, count);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTokens * kQueries * kVectors; ++i) sum[i] = hn::Zero(d);
  for (int64_t i = 0; i < head.state_dim; ++i) {
    float* inner = head.s_inner + i * head.head_dim + column;
    const float* outer = head.s_outer + i * head.head_dim + column;
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      V s = LoadColumns<kPartial>(inner + n * lanes, count);
      const V s_outer = LoadColumns<kPartial>(outer + n * lanes, count);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        if (kUpdate) s = hn::MulAdd(hn::Set(d, k[t][i]), v[t * kVectors + n], s);
        const V value = hn::Add(s, s_outer);
#pragma GCC unroll 4
        for (int r = 0; r < kQueries; ++r) {
          V& out = sum[(t * kQueries + r) * kVectors + n];
          out = hn::MulAdd(hn::Set(d, q[t][r * head.state_dim + i]), value, out);
        }
      }
      if (kUpdate) StoreColumns<kPartial>(s, inner + n * lanes, count);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < kQueries; ++r) {
      float* o = head.o + (token + t) * head.o_stride + (query + r) * head.head_dim + column;
      const V scale = hn::Set(d, factor[t * head.queries + query + r]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n)
        StoreColumns<kPartial>(hn::Mul(sum[(t * kQueries + r) * kVectors + n], scale), o + n * lanes, count);
    }
  }
}

// All columns.
template <int kTokens, int kQueries, bool kUpdate>
HWY_INLINE void StepColumns(const RecurrenceHead& head, int64_t token, int query, const float* factor) {
  constexpr int kFit = kStepAccumulators / (kTokens * kQueries);
  constexpr int kVectors = kFit > 4 ? 4 : kFit;
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + kVectors * lanes <= head.head_dim; column += kVectors * lanes)
    StepTile<kTokens, kQueries, kVectors, kUpdate, false>(head, token, query, column, 0, factor);
  for (; column + lanes <= head.head_dim; column += lanes)
    StepTile<kTokens, kQueries, 1, kUpdate, false>(head, token, query, column, 0, factor);
  if (column < head.head_dim)
    StepTile<kTokens, kQueries, 1, kUpdate, true>(head, token, query, column,
                                                  static_cast<size_t>(head.head_dim - column), factor);
}

HWY_INLINE float Dot(const float* a, const float* b, size_t count) {
  return Sum2(a, b, count, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
}

// Adds k to z_inner and leaves what the token's outputs are multiplied by. factor: [queries].
HWY_INLINE void StepNormalizer(const RecurrenceHead& head, int64_t token, float* factor) {
  if (head.z_inner == nullptr) {
    for (int r = 0; r < head.queries; ++r) factor[r] = head.scale;
    return;
  }
  const auto state_dim = static_cast<size_t>(head.state_dim);
  const float* q = head.q + token * head.q_stride;
  Map2(head.z_inner, head.k + token * head.k_stride, head.z_inner, state_dim,
       [](V z, V k) HWY_ATTR { return hn::Add(z, k); });
  for (int r = 0; r < head.queries; ++r, q += head.state_dim)
    factor[r] = 1.0f / (Dot(q, head.z_inner, state_dim) + Dot(q, head.z_outer, state_dim) + head.eps);
}

// One token, any number of query heads: the first group updates the state, the others read it.
HWY_INLINE void StepOneToken(const RecurrenceHead& head, int64_t token, const float* factor) {
  int query = 4;
  switch (head.queries) {
    case 1:
      return StepColumns<1, 1, true>(head, token, 0, factor);
    case 2:
      return StepColumns<1, 2, true>(head, token, 0, factor);
    case 3:
      return StepColumns<1, 3, true>(head, token, 0, factor);
    default:
      StepColumns<1, 4, true>(head, token, 0, factor);
  }
  for (; query + 4 <= head.queries; query += 4) StepColumns<1, 4, false>(head, token, query, factor);
  for (; query < head.queries; ++query) StepColumns<1, 1, false>(head, token, query, factor);
}

// Tokens [token, token + count), between which no fold lies. factor: scratch [kStepTokens * queries].
void StepTokens(const RecurrenceHead& head, int64_t token, int64_t count, float* factor) {
  const int64_t end = token + count;
  const int64_t together = head.queries == 1 ? kStepTokens : head.queries <= 4 ? 2 : 1;
  while (token < end) {
    const int64_t tokens = end - token >= together ? together : 1;
    for (int64_t t = 0; t < tokens; ++t) StepNormalizer(head, token + t, factor + t * head.queries);
    if (tokens == 1)
      StepOneToken(head, token, factor);
    else if (head.queries == 1)
      StepColumns<kStepTokens, 1, true>(head, token, 0, factor);
    else if (head.queries == 2)
      StepColumns<2, 2, true>(head, token, 0, factor);
    else if (head.queries == 3)
      StepColumns<2, 3, true>(head, token, 0, factor);
    else
      StepColumns<2, 4, true>(head, token, 0, factor);
    token += tokens;
  }
}

// inner moves into outer.
void FoldHead(const RecurrenceHead& head) {
  const auto fold = [](float* outer, float* inner, size_t count) HWY_ATTR {
    Map2(outer, inner, outer, count, [](V a, V b) HWY_ATTR { return hn::Add(a, b); });
    std::memset(inner, 0, count * sizeof(float));
  };
  fold(head.s_outer, head.s_inner, static_cast<size_t>(head.state_dim * head.head_dim));
  if (head.z_inner != nullptr) fold(head.z_outer, head.z_inner, static_cast<size_t>(head.state_dim));
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
