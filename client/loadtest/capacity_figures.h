// CapacityFigures: what opening sessions until the server refuses one has shown.
#pragma once

#include <cstdint>
#include <string>

#include "client/loadtest/distribution.h"

namespace weir {

struct CapacityFigures {
  int64_t slots = 0;       // of the model, as the server says
  int64_t slots_free = 0;  // before the first session was opened
  int64_t sessions = 0;    // opened until one was refused
  double create_seconds = 0;
  Distribution create_ms;  // per session, with those beside it
  std::string refused_with;
  std::string refused_message;
  int64_t arena_bytes = 0;  // in use when all were open
  int64_t resident_bytes = 0;

  int64_t with_token = 0;  // sessions that generated one
  double generate_seconds = 0;
  Distribution first_token_ms;
  int64_t steps = 0;   // of the model, meanwhile
  double step_ms = 0;  // mean
  // With all sessions open.
  bool refused_again = false;
  bool accepted_after_delete = false;
  std::string failure;  // why the run fails for this model; empty: it passes
};

}  // namespace weir
