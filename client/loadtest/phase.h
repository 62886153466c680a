// LoadPhase: one part of a load test, such as 30 seconds of traffic of one model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/loadtest/loop.h"

namespace weir {

// One row of the table that is drawn while a phase runs.
struct LiveRow {
  std::string what;      // the model, and what is done to it: "tales-linear, 8 at once"
  std::string progress;  // "12s of 30s", "position 10,000"
  int64_t running = 0;   // turns
  int64_t completed = 0;
  int64_t failed = 0;
  int64_t tokens = 0;             // generated, or appended, since the start
  double tokens_per_second = -1;  // of the last second; negative: none yet, here and below
  double ttft_ms = -1;            // medians so far
  double itl_ms = -1;
  // Of a phase that is no traffic: all there is to say, in place of everything above.
  std::string line = {};
};

// All on the Loop's thread; used once.
class LoadPhase {
 public:
  virtual ~LoadPhase() = default;

  // `done` is called once, in a later task, when the phase has nothing more on the server: no turn runs,
  // every session of its own is deleted (or the server is lost).
  virtual void Start(LoopTask done) = 0;
  // Ends the phase early: cancels what runs and cleans up; `done` still comes. May be called at any time
  // after Start, more than once.
  virtual void Interrupt() = 0;
  virtual std::vector<LiveRow> Live() const = 0;
};

}  // namespace weir
