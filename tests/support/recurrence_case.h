// All tensors of one call of the linear recurrence: random φ(q), φ(k) >= 0 and v, and a state to start from.
#pragma once

#include <cmath>
#include <vector>

#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"

namespace weir {

// kConstant: one a head for all tokens. kPerToken: one a head and token, from 1 down to 0. kRare: of two
// levels, 0 (in the logarithm) but for a few tokens.
enum class Decay : uint8_t { kNone, kConstant, kPerToken, kRare };

struct RecurrenceShape {
  int num_heads = 1;
  int num_kv_heads = 1;
  int state_dim = 4;
  int head_dim = 4;
  bool normalised = true;
  Decay decay = Decay::kNone;
  int num_k_heads = 0;

  int levels() const { return decay == Decay::kConstant || decay == Decay::kPerToken ? 1 : 2; }
  int k_heads() const { return num_k_heads == 0 ? num_kv_heads : num_k_heads; }
};

// The state of `slots` sequences, from random (as after some tokens) or zero.
struct RecurrenceState {
  RecurrenceState(const RecurrenceShape& shape, int slots)
      : s_outer(DType::kF32, {slots, shape.num_kv_heads, shape.state_dim, shape.head_dim}),
        s_inner(DType::kF32, {slots, shape.num_kv_heads, shape.state_dim, shape.head_dim}),
        z_outer(DType::kF32, {slots, shape.num_kv_heads, shape.state_dim}),
        z_inner(DType::kF32, {slots, shape.num_kv_heads, shape.state_dim}),
        levels_(shape.levels()) {
    for (Guarded* part : {&s_outer, &s_inner, &z_outer, &z_inner}) part->Fill(0.0);
  }
  void Randomize(uint64_t seed) {
    Random random(seed);
    random.FillNormal(s_outer, 5.0);
    random.FillNormal(s_inner, 1.0);
    random.FillUniform(z_outer, 1.0, 20.0);
    random.FillUniform(z_inner, 0.0, 4.0);
    if (levels_ == 2) return;
    s_outer.Fill(0.0);
    z_outer.Fill(0.0);
  }
  // outer + inner.
  std::vector<double> S() const { return Sum(s_outer, s_inner); }
  std::vector<double> Z() const { return Sum(z_outer, z_inner); }
  bool RedZonesIntact() const {
    return s_outer.RedZonesIntact() && s_inner.RedZonesIntact() && z_outer.RedZonesIntact() &&
           z_inner.RedZonesIntact();
  }
  // Both levels of S and z of one slot, bit for bit.
  std::vector<float> Slot(int slot) const {
    std::vector<float> bits;
    for (const Guarded* part : {&s_outer, &s_inner, &z_outer, &z_inner})
      bits.insert(bits.end(), part->row<float>(slot), part->row<float>(slot) + part->view().row_size());
    return bits;
  }

  Guarded s_outer, s_inner, z_outer, z_inner;

 private:
  const int levels_;  // with one, the outer tensors stay zero

  static std::vector<double> Sum(const Guarded& a, const Guarded& b) {
    std::vector<double> sum = a.ToDoubles();
    const std::vector<double> other = b.ToDoubles();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    return sum;
  }
};

struct RecurrenceTokens {
  RecurrenceTokens(const RecurrenceShape& shape, int num_tokens, uint64_t seed)
      : q(DType::kF32,
          {num_tokens, shape.k_heads() * (shape.num_heads / shape.num_kv_heads) * shape.state_dim}, 3),
        k(DType::kF32, {num_tokens, shape.k_heads() * shape.state_dim}, 1),
        v(DType::kF32, {num_tokens, shape.num_kv_heads * shape.head_dim}, 5),
        o(DType::kF32, {num_tokens, shape.num_heads * shape.head_dim}, 2),
        log_decay(DType::kF32, {shape.decay == Decay::kConstant ? 1 : num_tokens, shape.num_kv_heads}, 3) {
    Random random(seed);
    random.FillUniform(q, 0.0, 2.0);
    random.FillUniform(k, 0.0, 2.0);
    random.FillNormal(v);
    FillDecay(shape.decay, random, 0, static_cast<int>(log_decay.view().num_rows()));
  }
  // Rows [first, first + count) of log_decay.
  void FillDecay(Decay decay, Random& random, int first, int count) {
    if (decay == Decay::kNone) return;
    for (int t = first; t < first + count; ++t) {
      for (int64_t h = 0; h < log_decay.view().row_size(); ++h) {
        float& value = log_decay.row<float>(t)[h];
        if (decay == Decay::kConstant)
          value = -0.03f * static_cast<float>(h + 1);
        else if (decay == Decay::kPerToken)  // now and then all is forgotten
          value = static_cast<float>(random.Int(0, 40) == 0 ? -1e4 : -random.Uniform(0.0, 0.4));
        else
          value = static_cast<float>(random.Int(0, 9) == 0 ? -random.Uniform(0.0, 1.0) : 0.0);
      }
    }
  }
  Guarded q, k, v, o, log_decay;
};

// `first` and the tokens of `ragged` choose the rows of `tokens`.
inline LinearRecurrenceArgs MakeArgs(const RecurrenceShape& shape, const Ragged& ragged,
                                     const RecurrenceTokens& tokens, const RecurrenceState& state,
                                     int first = 0) {
  LinearRecurrenceArgs args;
  args.batch = ragged.batch();
  args.q = tokens.q.view().Rows(first, ragged.num_tokens());
  args.k = tokens.k.view().Rows(first, ragged.num_tokens());
  args.v = tokens.v.view().Rows(first, ragged.num_tokens());
  args.o = tokens.o.view().Rows(first, ragged.num_tokens());
  if (shape.decay == Decay::kConstant)
    args.log_decay = tokens.log_decay;
  else if (shape.decay != Decay::kNone)
    args.log_decay = tokens.log_decay.view().Rows(first, ragged.num_tokens());
  if (shape.levels() == 2) args.s_outer = state.s_outer;
  args.s_inner = state.s_inner;
  if (shape.normalised) {
    if (shape.levels() == 2) args.z_outer = state.z_outer;
    args.z_inner = state.z_inner;
  }
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.num_k_heads = shape.num_k_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.state_dim));
  return args;
}

}  // namespace weir
