// What a row of logits is sampled with, and what comes of it: plain bytes that the host and kernels share.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weir {

inline constexpr int kMaxRowSuppressed = 8;

// As in SamplingParams (runtime/engine/sampler.h), whose checks they have passed.
struct RowParams {
  uint64_t seed = 0;
  uint64_t token_index = 0;  // position of the token in its sequence's stream of draws
  int32_t row = 0;           // of the logits
  int32_t target = -1;       // not negative: nothing is drawn, log-probability and rank of this id are wanted
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t logprob = 0;         // not 0: fill RowSample::logprob
  int32_t num_suppressed = 0;  // at most kMaxRowSuppressed
  int32_t suppressed[kMaxRowSuppressed] =
      {};  // ids that are not drawn; those outside the vocabulary are ignored
};

// As in SampleResult.
struct RowSample {
  int32_t token = -1;  // -1: nothing was drawn
  int32_t finite = 0;
  int32_t no_candidate = 0;
  float logprob = 0;
  int32_t rank = 0;  // of the target, from 1; of equal logits the lowest id comes first
};

static_assert(std::is_trivially_copyable_v<RowParams> && sizeof(RowParams) == 80);
static_assert(std::is_trivially_copyable_v<RowSample> && sizeof(RowSample) == 20);

}  // namespace weir
