// GrowthFigures: what a model's memory did while its sessions grew, and the verdict on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/loadtest/distribution.h"
#include "client/loadtest/growth_plan.h"
#include "client/loadtest/state_shape.h"
#include "client/loadtest/witnesses.h"

namespace weir {

// Time per token while sessions generate, in ms: the gap between two messages is shared evenly by the tokens
// of the second one, so that the mean is (last arrival - first) / (tokens after the first message), however
// the tokens were packed. The first message's tokens have none.
struct TimePerToken {
  Distribution ms;
  double p10_ms = 0;
};

// All sessions at one position, no turn running.
struct GrowthPoint {
  int64_t position = 0;
  MemorySample sample;
  int64_t session_bytes = 0;  // the most that the server's accounting gives to one session
  // Of the tokens that follow, all sessions at the same time. Nothing where there is no second message.
  std::optional<TimePerToken> itl;
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

// What the verdict, and how the growth ended, mean for the run.
enum class GrowthOutcome {
  kPassed,
  kUndecided,  // nothing was found, for or against: does not pass
  kFailed
};
std::string_view GrowthOutcomeName(GrowthOutcome outcome);  // as in the report

// Why a model's growth ended before its last position.
struct GrowthStop {
  int64_t position = 0;  // of the session that was refused
  std::string reason;    // such as KV_CAPACITY_EXHAUSTED
  std::string message;
  bool refusal = false;  // for want of room: nothing is broken
  bool lost = false;     // the server does not answer any more
};

struct GrowthFigures {
  GrowthWay way;  // that was asked for
  bool by_append = true;
  std::vector<GrowthPoint> points;
  std::vector<MemorySample> samples;  // in order of time
  std::vector<AccountedBytes> accounted;
  std::optional<GrowthStop> stopped;
  std::string other_clients;  // what others had the server do meanwhile; empty: nothing
  int64_t others_arena = 0;   // bytes that others held in the arena before the growth began
  // What JudgeGrowth makes of them.
  std::optional<Slope> session_slope;
  WitnessSlopes slopes;
  double expected_bytes_per_token = 0;
  std::string
      process_witness;  // whose slope is judged: "anonymous", or "resident" of a server that does not tell
  GrowthVerdict verdict = GrowthVerdict::kUndecided;
  std::string why;  // one sentence
  GrowthOutcome outcome = GrowthOutcome::kUndecided;
  // Why the run does not pass for this model; empty: it does.
  std::string failure;
};

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
//
// An accounting that is not what the shapes say counts against the model in any case. Else, where other
// clients worked on the server meanwhile, what it takes is theirs as well, and nothing is decided.
void JudgeGrowth(GrowthFigures* figures);

// Of a growth that ended at `position` for a reason that says nothing of memory, `what`: "interrupted". The
// verdict is undecided, and its sentence says what was measured and what was not.
void JudgeCutShort(const std::string& what, int64_t position, GrowthOutcome outcome, GrowthFigures* figures);

}  // namespace weir
