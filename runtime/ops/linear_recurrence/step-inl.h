// Token after token: S_inner is read and written once, and S_outer read once, per pass over a few tokens.
#if defined(WEIR_RECURRENCE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_RECURRENCE_STEP_INL_H_
#undef WEIR_RECURRENCE_STEP_INL_H_
#else
#define WEIR_RECURRENCE_STEP_INL_H_
#endif

#include <cmath>

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

// kTwo: outer + inner, no decay. kOne: inner alone, which decays.
enum class Levels { kTwo, kOne };

// What differs from token to token.
struct StepScalars {
  const float* factor = nullptr;  // [kTokens][queries]: multiplies the outputs
  const float* decay = nullptr;   // [kTokens]: multiplies the state before the token is added (one level)
};

// `kTokens` tokens from `token`, `kQueries` query heads from `query`, `kVectors` vectors of columns from
// `column` (of which `count` columns exist where kPartial).
template <Levels kLevels, int kTokens, int kQueries, int kVectors, bool kUpdate, bool kPartial>
HWY_INLINE void StepTile(const RecurrenceHead& head, int64_t token, int query, int64_t column, size_t count,
                         const StepScalars& scalars) {
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
    const float* outer = kLevels == Levels::kTwo ? head.s_outer + i * head.head_dim + column : nullptr;
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      V s = LoadColumns<kPartial>(inner + n * lanes, count);
      const V s_outer =
          kLevels == Levels::kTwo ? LoadColumns<kPartial>(outer + n * lanes, count) : hn::Zero(d);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        if (kUpdate && kLevels == Levels::kOne) s = hn::Mul(s, hn::Set(d, scalars.decay[t]));
        if (kUpdate) s = hn::MulAdd(hn::Set(d, k[t][i]), v[t * kVectors + n], s);
        const V value = kLevels == Levels::kTwo ? hn::Add(s, s_outer) : s;
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
      const V scale = hn::Set(d, scalars.factor[t * head.queries + query + r]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n)
        StoreColumns<kPartial>(hn::Mul(sum[(t * kQueries + r) * kVectors + n], scale), o + n * lanes, count);
    }
  }
}

// All columns.
template <Levels kLevels, int kTokens, int kQueries, bool kUpdate>
HWY_INLINE void StepColumns(const RecurrenceHead& head, int64_t token, int query,
                            const StepScalars& scalars) {
  constexpr int kFit = kStepAccumulators / (kTokens * kQueries);
  constexpr int kVectors = kFit > 4 ? 4 : kFit;
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t column = 0;
  for (; column + kVectors * lanes <= head.head_dim; column += kVectors * lanes)
    StepTile<kLevels, kTokens, kQueries, kVectors, kUpdate, false>(head, token, query, column, 0, scalars);
  for (; column + lanes <= head.head_dim; column += lanes)
    StepTile<kLevels, kTokens, kQueries, 1, kUpdate, false>(head, token, query, column, 0, scalars);
  if (column < head.head_dim)
    StepTile<kLevels, kTokens, kQueries, 1, kUpdate, true>(
        head, token, query, column, static_cast<size_t>(head.head_dim - column), scalars);
}

HWY_INLINE float Dot(const float* a, const float* b, size_t count) {
  return Sum2(a, b, count, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
}

// Multiplies every level of the state.
HWY_INLINE void ScaleHead(const RecurrenceHead& head, float decay) {
  const V factor = hn::Set(F32(), decay);
  const auto scale = [factor](float* values, int64_t count) HWY_ATTR {
    if (values == nullptr) return;
    Map1(values, values, static_cast<size_t>(count), [factor](V x) HWY_ATTR { return hn::Mul(x, factor); });
  };
  scale(head.s_inner, head.state_dim * head.head_dim);
  scale(head.s_outer, head.state_dim * head.head_dim);
  scale(head.z_inner, head.state_dim);
  scale(head.z_outer, head.state_dim);
}

// Adds k to z_inner, after its decay where z has one level, and leaves what the token's outputs are
// multiplied by. factor: [queries].
HWY_INLINE void StepNormalizer(const RecurrenceHead& head, int64_t token, float decay, float* factor) {
  if (head.z_inner == nullptr) {
    for (int r = 0; r < head.queries; ++r) factor[r] = head.scale;
    return;
  }
  const auto state_dim = static_cast<size_t>(head.state_dim);
  const float* q = head.q + token * head.q_stride;
  const V a = hn::Set(F32(), decay);
  if (head.z_outer == nullptr)
    Map2(head.z_inner, head.k + token * head.k_stride, head.z_inner, state_dim,
         [a](V z, V k) HWY_ATTR { return hn::MulAdd(a, z, k); });
  else
    Map2(head.z_inner, head.k + token * head.k_stride, head.z_inner, state_dim,
         [](V z, V k) HWY_ATTR { return hn::Add(z, k); });
  for (int r = 0; r < head.queries; ++r, q += head.state_dim) {
    const float outer = head.z_outer == nullptr ? 0.0f : Dot(q, head.z_outer, state_dim);
    factor[r] = 1.0f / (Dot(q, head.z_inner, state_dim) + outer + head.eps);
  }
}

// One token, any number of query heads: the first group updates the state, the others read it.
template <Levels kLevels>
HWY_INLINE void StepOneToken(const RecurrenceHead& head, int64_t token, const StepScalars& scalars) {
  int query = 4;
  switch (head.queries) {
    case 1:
      return StepColumns<kLevels, 1, 1, true>(head, token, 0, scalars);
    case 2:
      return StepColumns<kLevels, 1, 2, true>(head, token, 0, scalars);
    case 3:
      return StepColumns<kLevels, 1, 3, true>(head, token, 0, scalars);
    default:
      StepColumns<kLevels, 1, 4, true>(head, token, 0, scalars);
  }
  for (; query + 4 <= head.queries; query += 4)
    StepColumns<kLevels, 1, 4, false>(head, token, query, scalars);
  for (; query < head.queries; ++query) StepColumns<kLevels, 1, 1, false>(head, token, query, scalars);
}

// Several tokens in one pass: kStepTokens of one query head, else two of at most four.
template <Levels kLevels>
HWY_INLINE void StepSeveralTokens(const RecurrenceHead& head, int64_t token, const StepScalars& scalars) {
  switch (head.queries) {
    case 1:
      return StepColumns<kLevels, kStepTokens, 1, true>(head, token, 0, scalars);
    case 2:
      return StepColumns<kLevels, 2, 2, true>(head, token, 0, scalars);
    case 3:
      return StepColumns<kLevels, 2, 3, true>(head, token, 0, scalars);
    default:
      return StepColumns<kLevels, 2, 4, true>(head, token, 0, scalars);
  }
}

// Tokens [token, token + count), between which no fold lies. factor: scratch [kStepTokens * queries].
template <Levels kLevels>
HWY_INLINE void StepLevels(const RecurrenceHead& head, int64_t token, int64_t count, float* factor) {
  const int64_t end = token + count;
  const int64_t together = head.queries == 1 ? kStepTokens : head.queries <= 4 ? 2 : 1;
  float decay[kStepTokens];
  const StepScalars scalars = {factor, decay};
  while (token < end) {
    int64_t tokens = end - token >= together ? together : 1;
    for (int64_t t = 0; t < tokens; ++t) {
      const float log_decay = head.LogDecay(token + t);
      decay[t] = log_decay == 0.0f ? 1.0f : std::exp(log_decay);
      if (kLevels == Levels::kOne || decay[t] == 1.0f) continue;
      // Rare with two levels: a pass of its own, before the token.
      if (t == 0)
        ScaleHead(head, decay[t]);
      else
        tokens = 1;
    }
    for (int64_t t = 0; t < tokens; ++t) StepNormalizer(head, token + t, decay[t], factor + t * head.queries);
    if (tokens == 1)
      StepOneToken<kLevels>(head, token, scalars);
    else
      StepSeveralTokens<kLevels>(head, token, scalars);
    token += tokens;
  }
}

void StepTokens(const RecurrenceHead& head, int64_t token, int64_t count, float* factor) {
  if (head.s_outer == nullptr)
    StepLevels<Levels::kOne>(head, token, count, factor);
  else
    StepLevels<Levels::kTwo>(head, token, count, factor);
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
