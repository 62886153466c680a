// The CPU kernel's view of its work: one state head of one run, and the two ways to advance it.
#pragma once

#include <cstdint>

#include "runtime/ops/linear_recurrence/linear_recurrence.h"

namespace weir {

// Pointers are at the run's first token; strides are elements between two tokens.
struct RecurrenceHead {
  const float* q = nullptr;  // [tokens][queries * state_dim]
  const float* k = nullptr;  // [tokens][state_dim]
  const float* v = nullptr;  // [tokens][head_dim]
  float* o = nullptr;        // [tokens][queries * head_dim]
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  int64_t o_stride = 0;
  const float* log_decay = nullptr;  // [tokens], or null
  int64_t decay_stride = 0;          // 0: one for all tokens
  float* s_outer = nullptr;          // [state_dim][head_dim]; null with one level
  float* s_inner = nullptr;
  float* z_outer = nullptr;  // [state_dim]; null when not normalised or with one level
  float* z_inner = nullptr;
  int64_t state_dim = 0;
  int64_t head_dim = 0;
  int queries = 1;  // query heads that read this state
  float scale = 1.0f;
  float eps = 0.0f;

  // Not below kMinLogDecay; NaN stays NaN.
  float LogDecay(int64_t token) const {
    if (log_decay == nullptr) return 0.0f;
    const float value = log_decay[token * decay_stride];
    return value < kMinLogDecay ? kMinLogDecay : value;
  }
};

enum class WholeChunks : uint8_t { kSteps, kProducts };

// What LinearRecurrenceCpu does with whole chunks. Steps win on every CPU measured (tests/bench/
// recurrence_bench.cc): a step of several tokens at once already runs at the rate of the multipliers, and the
// products do half as much work again for the part inside the chunk.
inline constexpr WholeChunks kCpuWholeChunks = WholeChunks::kSteps;

// LinearRecurrenceCpu with the choice left open, for tests and benchmarks.
void LinearRecurrenceCpuWith(const LinearRecurrenceArgs& args, WholeChunks whole_chunks, Stream& stream);

// Floats of scratch that one chunk as products needs.
inline int64_t ChunkScratchElements(int64_t state_dim, int64_t head_dim) {
  return state_dim * head_dim + state_dim * kChunkTokens + kChunkTokens * kChunkTokens + state_dim;
}

}  // namespace weir
