// What a Generate stream must look like: prompt_info, deltas without a gap, finish.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "weir/v1/generation.pb.h"

namespace weir {

// One stream, one thread. Says DATA_LOSS at the first message that does not follow from those before it.
class StreamCheck {
 public:
  absl::Status Add(const v1::GenerateResponse& event);
  // After an OK status: the stream must have had its finish.
  absl::Status End() const;

  int64_t tokens() const { return tokens_; }

 private:
  enum class State { kStart, kDeltas, kFinished };
  absl::Status AddDelta(const v1::Delta& delta);

  State state_ = State::kStart;
  int64_t next_position_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace weir
