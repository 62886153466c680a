// What the CUDA forms of the linear recurrence share: which tokens are whose, and arithmetic that must have
// the same bits in all of them.
#pragma once

#include "runtime/device/cuda_launch.cuh"
#include "runtime/ops/linear_recurrence/linear_recurrence_cuda.h"

namespace weir {

// The least normal f32: what decays to less counts as zero, or it would stay the least denormal for ever.
inline constexpr float kLeastNormalFloat = 1.17549435e-38f;

// Tokens of a run: those before its first whole chunk (all, if it has none), its whole chunks, those after.
enum class RecurrencePart : uint8_t { kAll, kBefore, kWholeChunks, kAfter };

// Some tokens of one run and one state head.
struct RecurrenceRun {
  int head;
  int64_t slot;
  int64_t first, tokens;  // rows
  int64_t position;       // of the first
};

__device__ inline RecurrenceRun RunOf(const CudaRecurrence& r, int n, int head, RecurrencePart part) {
  RecurrenceRun run;
  run.head = head;
  run.slot = r.slots[n];
  run.first = r.cu_seqlens[n];
  run.tokens = r.cu_seqlens[n + 1] - run.first;
  run.position = r.positions[n];
  if (part == RecurrencePart::kAll) return run;
  const int64_t to_border = (kRecurrenceChunk - run.position % kRecurrenceChunk) % kRecurrenceChunk;
  const int64_t in_chunks =
      run.tokens < to_border ? 0 : (run.tokens - to_border) / kRecurrenceChunk * kRecurrenceChunk;
  const int64_t before = in_chunks == 0 ? run.tokens : to_border;
  const int64_t skipped = part == RecurrencePart::kBefore        ? 0
                          : part == RecurrencePart::kWholeChunks ? before
                                                                 : before + in_chunks;
  run.tokens = part == RecurrencePart::kBefore        ? before
               : part == RecurrencePart::kWholeChunks ? in_chunks
                                                      : run.tokens - skipped;
  run.first += skipped;
  run.position += skipped;
  return run;
}

// Tokens from `position` on until one before which inner moves into outer.
__device__ inline int64_t TokensToFold(const CudaRecurrence& r, int64_t position) {
  if (r.s_outer == nullptr) return INT64_MAX;
  const int64_t in_period = position % r.fold_tokens;
  return position > 0 && in_period == 0 ? 0 : r.fold_tokens - in_period;
}

__device__ inline float LogDecay(const CudaRecurrence& r, const RecurrenceRun& run, int64_t t) {
  const float value = r.log_decay[(run.first + t) * r.decay_stride + run.head];
  return value < r.min_log_decay ? r.min_log_decay : value;  // NaN stays NaN
}

__device__ inline float DecayOf(const CudaRecurrence& r, const RecurrenceRun& run, int64_t t) {
  if (r.log_decay == nullptr) return 1.0f;
  const float log_decay = LogDecay(r, run, t);
  return log_decay == 0.0f ? 1.0f : expf(log_decay);
}

// decay · x for a decay that is not 1.
__device__ inline float Decayed(float x, float decay) {
  const float y = __fmul_rn(x, decay);
  return fabsf(y) < kLeastNormalFloat ? 0.0f : y;
}

// One element of z before a token's key is added: the fold, then the decay, of both levels.
__device__ inline void AdvanceNormalizer(float& inner, float& outer, bool fold, float decay) {
  if (fold) {
    outer = __fadd_rn(outer, inner);
    inner = 0.0f;
  }
  if (decay != 1.0f) {
    inner = Decayed(inner, decay);
    outer = Decayed(outer, decay);
  }
}

__device__ inline const float* KeysOf(const CudaRecurrence& r, const RecurrenceRun& run) {
  return r.k + run.first * r.k_stride + static_cast<int64_t>(run.head / r.states_of_k) * r.state_dim;
}
__device__ inline const float* QueriesOf(const CudaRecurrence& r, const RecurrenceRun& run) {
  return r.q + run.first * r.q_stride +
         static_cast<int64_t>(run.head / r.states_of_k) * r.queries * r.state_dim;
}

// Element 0 of a head's state or normaliser, of `elements` a head; null where there is none.
__device__ inline float* StateOf(float* state, int64_t stride, const RecurrenceRun& run, int64_t elements) {
  return state == nullptr ? nullptr : state + run.slot * stride + run.head * elements;
}

}  // namespace weir
