// CapacityFigures: what opening sessions until the server refuses one has shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/loadtest/distribution.h"

namespace weir {

// What was not tried, or got no answer, has no value. Counts are of what was done before the phase ended.
struct CapacityFigures {
  std::optional<int64_t> slots;       // of the model, as the server says
  std::optional<int64_t> slots_free;  // before the first session was opened
  std::optional<int64_t> sessions;    // opened, until one was refused
  std::optional<double> create_seconds;
  Distribution create_ms;                   // per session, with those beside it
  std::optional<std::string> refused_with;  // reason, or code, of the first refusal

  std::optional<int64_t> with_token;  // sessions that generated one
  std::optional<double> generate_seconds;
  Distribution first_token_ms;
  std::optional<int64_t> steps;   // of the model, meanwhile
  std::optional<double> step_ms;  // mean
  // With all sessions open, a token in each.
  std::optional<int64_t> arena_bytes;  // in use
  std::optional<int64_t> resident_bytes;
  std::optional<bool> refused_again;
  std::optional<bool> accepted_after_delete;
  std::string failure;  // why the run fails for this model; empty: it passes
};

}  // namespace weir
