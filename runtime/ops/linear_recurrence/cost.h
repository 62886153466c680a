// What linear attention costs against softmax attention, as formulas: work, memory, and where each wins.
#pragma once

#include <cstdint>

namespace weir {

// Entries of the score matrix Q Kᵀ: [n, n].
constexpr int64_t ScoreEntries(int64_t num_tokens) { return num_tokens * num_tokens; }

// Entries of the summary φ(K)ᵀ V: [state_dim, head_dim].
constexpr int64_t SummaryEntries(int64_t state_dim, int64_t head_dim) { return state_dim * head_dim; }

// Multiply-adds of softmax(Q Kᵀ) V for one head, in the order n² d; the constant (two products) is the same
// in LinearWork and left out of both.
constexpr int64_t SoftmaxWork(int64_t num_tokens, int64_t head_dim) {
  return num_tokens * num_tokens * head_dim;
}

// φ(Q) (φ(K)ᵀ V): n d' d. It grows with d' once, not squared.
constexpr int64_t LinearWork(int64_t num_tokens, int64_t state_dim, int64_t head_dim) {
  return num_tokens * state_dim * head_dim;
}

// SoftmaxWork / LinearWork = n / d'.
constexpr double WorkRatio(int64_t num_tokens, int64_t state_dim, int64_t head_dim) {
  return static_cast<double>(SoftmaxWork(num_tokens, head_dim)) /
         static_cast<double>(LinearWork(num_tokens, state_dim, head_dim));
}

// The length from which linear attention does less work: n = d', the lesson's "n = d" where d' = d.
constexpr int64_t WorkCrossoverTokens(int64_t state_dim) { return state_dim; }

// f32 levels of the state: inner and outer.
inline constexpr int kStateLevels = 2;

// Bytes of S and z for `num_kv_heads` heads of one layer of one sequence, whatever its length.
constexpr int64_t RecurrenceStateBytes(int64_t num_kv_heads, int64_t state_dim, int64_t head_dim,
                                       bool normalised = true, int levels = kStateLevels) {
  return levels * num_kv_heads * (state_dim * head_dim + (normalised ? state_dim : 0)) *
         static_cast<int64_t>(sizeof(float));
}

// Bytes that one more token adds to a KV cache for the same layer; 16-bit elements unless said otherwise.
constexpr int64_t KvBytesPerToken(int64_t num_kv_heads, int64_t head_dim, int64_t element_bytes = 2) {
  return 2 * num_kv_heads * head_dim * element_bytes;
}

// The length from which the state takes fewer bytes than the KV cache of the same layer would. The softmax
// side may have fewer heads (grouped queries), which moves the point up.
constexpr int64_t BreakEvenTokens(int64_t state_bytes, int64_t kv_bytes_per_token) {
  return (state_bytes + kv_bytes_per_token - 1) / kv_bytes_per_token;
}

}  // namespace weir
