// GrowthWay: how far sessions are brought, in which pieces, and whether that is enough for a verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/loadtest/state_shape.h"

namespace weir {

// Least span of tokens, and least number of measured samples, of a verdict on the process. A heap first fills
// the holes that it has, or takes what it needs for good, and the kernel counts whole pages: over fewer
// tokens a leak of a byte each need not show at all, and what shows need not be a leak.
inline constexpr int64_t kLeastGrowthSpan = 100'000;
inline constexpr int64_t kLeastGrowthSamples = 10;

struct GrowthWay {
  StateShape shape;
  int64_t context_limit = 0;  // tokens of the longest sequence; 0: no limit
  int64_t sessions = 16;
  // Ascending, the first at least 1, each at least latency_tokens above the one before; two at least.
  std::vector<int64_t> positions;
  int64_t latency_tokens = 16;  // generated at each position for the latencies there; 0: none
  int64_t piece = 0;            // tokens of one turn; 0: as GrowthPiece() says
};

// INVALID_ARGUMENT names what is wrong with the positions.
absl::Status CheckGrowthWay(const GrowthWay& way);

// Tokens that a session gets in one turn: small enough for some hundred turns, and so samples, between the
// first position and the last, and no more than the first position has, so that the warm-up has seen the
// like.
int64_t GrowthPiece(const std::vector<int64_t>& positions);

// What comes of a way that is gone to its end.
struct GrowthPlan {
  int64_t piece = 0;
  // Position of a session from which on samples are measured. The first position's latencies, and a sixteenth
  // of the pieces that follow, two at least, come before: by then buffers have their sizes, and each thread's
  // heap its fill. (Paged state is exact from its first token on and grows for a short way only: there it is
  // two.)
  int64_t measured_from = 0;
  int64_t samples = 0;  // measured ones
  int64_t span = 0;     // tokens of all sessions from the first of them to the last
};
GrowthPlan PlanGrowth(const GrowthWay& way);

// Options with which the samples of `way` would span so many tokens, and be enough: "--positions 1000,250000
// or --sessions 40". Where no option can do it, it says so.
std::string GrowthRemedy(const GrowthWay& way, double wanted_span);

// Of a way that cannot lead to a verdict on constant state, however it goes: why, and what to do; else empty.
std::string GrowthWarning(const GrowthWay& way);

}  // namespace weir
