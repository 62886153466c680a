// Scheduler: which tokens of which sequences the next step computes. Pure policy: no clock, no threads; a
// plan depends on the calls before it only for the sake of fairness.
//
// Anchored chunks. A granule g is the chunk of the model's prefill kernels: tokens that fill a whole [c*g,
// (c+1)*g) of absolute positions may be computed together, all others one by one. So that a token's result
// does not depend on the load, no whole chunk is ever split over two steps; the load only decides how many
// chunks go in one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// One sequence that wants to run.
struct SeqView {
  int index = 0;            // the caller's name for it
  int64_t position = 0;     // absolute position of its first pending token
  int64_t pending = 1;      // tokens waiting to be fed, at least 1
  bool generating = false;  // true: the last pending token is decoded; false (append only): it stays pending
  uint64_t arrival = 0;     // order of arrival, unique among the sequences
};

struct SchedulerLimits {
  int max_step_tokens = 512;  // at least prefill_granule + 1; never exceeded
  int max_step_seqs = 256;    // runs per step; never exceeded
  int prefill_granule = 64;   // 1 for models whose rows do not depend on the split
  // Prefill tokens that may always join decoders, whatever they cost; raised to the granule.
  int min_prefill_tokens = 1;
  // Cost of the token at position p: flops_per_token + p * flops_per_token_and_position.
  double flops_per_token = 1;
  double flops_per_token_and_position = 0;
};

struct ScheduledRun {
  int index = 0;        // SeqView::index
  int num_tokens = 0;   // the first num_tokens pending ones
  bool decode = false;  // the last pending token: its logits are sampled
};

struct StepPlan {
  std::vector<ScheduledRun> runs;  // decodes first
  int num_decodes = 0;
  int num_prefill_tokens = 0;
};

// Exclusive end, as absolute position, of the pending tokens that may be prefilled; `position` when none may.
// Generating: all but the last one, which is decoded. Append only: up to the last chunk border that is not
// past the final pending token; the rest waits for more tokens, so that Append then Generate cuts like
// Generate alone.
int64_t FeedableUntil(int64_t position, int64_t pending, bool generating, int granule);

// Exclusive end of the longest slice that starts at `position`, takes at most `max_tokens`, and ends on a
// chunk border or at `feedable_until`; `position` when there is none.
int64_t SliceEnd(int64_t position, int64_t feedable_until, int64_t max_tokens, int granule);

// Policy:
// - A generating sequence with one pending token decodes in every step. Over max_step_seqs they take turns;
//   one run and one granule are kept for waiting prefill.
// - Beside decodes, prefill costs at most three quarters of what they do, so that a step takes less than
//   twice its usual time; but it gets min_prefill_tokens in any case. Without decodes it gets all
//   max_step_tokens.
// - Steps favour in turn the oldest waiting prefill and the one with the fewest tokens left: the oldest
//   advances at least every second step, and a short prompt does not wait behind a long one.
// Owner: the engine thread. Plan() does not allocate once it has seen as many sequences.
class Scheduler {
 public:
  static absl::StatusOr<Scheduler> Create(const SchedulerLimits& limits);

  // Replaces *plan. Nothing to do gives no runs.
  void Plan(std::span<const SeqView> seqs, StepPlan* plan);

  const SchedulerLimits& limits() const { return limits_; }

 private:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  double Cost(int64_t position, int64_t num_tokens) const;
  int64_t TokensWithin(int64_t position, int64_t max_tokens, double budget) const;
  double PlanDecodes(int64_t max_decodes, StepPlan* plan);
  void PlanPrefill(double decode_cost, StepPlan* plan);

  struct Waiting {
    const SeqView* seq;
    int64_t feedable_until;
  };

  SchedulerLimits limits_;
  uint64_t next_decode_arrival_ = 0;  // where the round of decoders goes on
  bool shortest_first_ = false;
  bool prefill_turn_ = false;  // with room for one run only, decode and prefill take turns
  std::vector<const SeqView*> decoders_;
  std::vector<Waiting> waiting_;
};

}  // namespace weir
