// GrowthFigures: what a model's memory did while its sessions grew, and the verdict on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/loadtest/distribution.h"
#include "client/loadtest/state_shape.h"
#include "client/loadtest/witnesses.h"

namespace weir {

// All sessions at one position, no turn running.
struct GrowthPoint {
  int64_t position = 0;
  MemorySample sample;
  int64_t session_bytes = 0;  // the most that the server's accounting gives to one session
  Distribution itl_ms;        // of the tokens that follow, all sessions at the same time
};

// One reading of a session's bytes in the server's accounting.
struct AccountedBytes {
  int64_t position = 0;
  int64_t bytes = 0;
};

enum class GrowthVerdict {
  kConstant,    // fixed state: not one byte per token
  kAsExpected,  // paged state: what the shapes say
  kGrows,
  kUndecided
};
std::string_view GrowthVerdictName(GrowthVerdict verdict);  // as in the report

// Why a model's growth ended before its last position.
struct GrowthStop {
  int64_t position = 0;  // of the session that was refused
  std::string reason;    // such as KV_CAPACITY_EXHAUSTED
  std::string message;
  bool refusal = false;  // for want of room: nothing is broken
};

struct GrowthFigures {
  int64_t sessions = 0;
  bool by_append = true;
  int64_t last_position = 0;  // that was asked for
  std::vector<GrowthPoint> points;
  std::vector<MemorySample> samples;  // in order of time
  std::vector<AccountedBytes> accounted;
  std::optional<GrowthStop> stopped;
  // What JudgeGrowth makes of them.
  std::optional<Slope> session_slope;
  WitnessSlopes slopes;
  double expected_bytes_per_token = 0;
  std::string
      process_witness;  // whose slope is judged: "anonymous", or "resident" of a server that does not tell
  GrowthVerdict verdict = GrowthVerdict::kUndecided;
  std::string why;  // one sentence
  // Why the run fails for this model; empty: it passes.
  std::string failure;
};

// Least span of tokens, and least number of measured samples, of a verdict on the process. A heap first fills
// the holes that it has, or takes what it needs for good, and the kernel counts whole pages: over fewer
// tokens a leak of a byte each need not show at all, and what shows need not be a leak.
inline constexpr int64_t kLeastGrowthSpan = 100'000;
inline constexpr int64_t kLeastGrowthSamples = 10;
// Bytes per token of one session that the process has to be shown to stay under.
inline constexpr double kGrowthLimit = 1;

// Fits the slopes of what was measured and judges them.
//
// The unit is bytes per token of one session. x is the sum of the positions of all sessions: where every
// session keeps L bytes of each of its own tokens, the process grows by L whenever any session takes a token,
// so that the slope is L whatever the number of sessions.
//
// Fixed state is constant when each of these holds: every reading of the accounting is the same and is what
// the shapes say; so is the arena's use in all measured samples; the upper end of the 95 % interval of the
// process's slope is below kGrowthLimit. Paged state is as expected when accounting and arena are what the
// shapes say at the positions, within one block per session; the process is shown beside it.
void JudgeGrowth(const StateShape& shape, GrowthFigures* figures);

}  // namespace weir
