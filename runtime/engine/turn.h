// What a client asks of the engine, and what it is told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/stop_matcher.h"

namespace weir {

// One turn: tokens in, tokens out. `max_tokens` 0 only absorbs the prompt (that is Append).
struct TurnParams {
  int model = 0;        // index among the engine's models
  std::string session;  // id; empty: the state lives for this turn only
  std::string owner;    // whose sessions are meant
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  int64_t max_tokens = 0;
  std::shared_ptr<const StopMatcher> stop_strings;  // null: none
  std::vector<int32_t> stop_ids;                    // sorted; besides the model's end-of-sequence ids
  bool ignore_eos = false;
  bool score = false;  // log-probabilities of prompt[1..]; nothing is generated, no session
  std::string etag;    // empty: any
  std::optional<int64_t> expected_position;
  absl::Time deadline = absl::InfiniteFuture();        // of the RPC: DEADLINE_EXCEEDED
  absl::Time arrival = absl::InfinitePast();           // of the RPC; InfinitePast: when it is submitted
  absl::Duration max_time = absl::InfiniteDuration();  // from admission: a normal finish
};

struct TurnInfo {  // known at admission
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
};

enum class FinishReason : uint8_t { kEos, kStopToken, kStopString, kMaxTokens, kContextLimit, kTimeLimit };

struct Finish {
  FinishReason reason = FinishReason::kMaxTokens;
  int32_t token_id = -1;  // kEos, kStopToken
  int stop_string = -1;   // kStopString: index as given to StopMatcher
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t position = 0;         // tokens in the sequence after the turn
  std::string incomplete_text;  // bytes of a cut character
  std::string etag;             // of the session, empty without one
};

struct SessionInfo {
  std::string id;
  int model = 0;
  std::string owner;
  std::string etag;
  int64_t position = 0;
  int64_t state_bytes = 0;     // held for it now, snapshots apart
  int64_t export_bytes = 0;    // of its export file, were it made now
  int64_t snapshot_bytes = 0;  // of all its snapshots
  bool busy = false;
  absl::Time create_time;
  absl::Time expire_time;
  std::vector<int32_t> recent_tokens;  // oldest first; empty in lists
};

struct SnapshotInfo {
  std::string session;
  std::string id;
  int64_t position = 0;
  int64_t state_bytes = 0;
  absl::Time create_time;
};

}  // namespace weir
