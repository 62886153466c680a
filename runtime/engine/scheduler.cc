#include "runtime/engine/scheduler.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "runtime/base/check.h"

namespace weir {
namespace {

// Of what the decodes of a step cost: a quarter of the step's doubling is left to estimates that are off.
constexpr double kPrefillShare = 0.75;

bool IsDecoder(const SeqView& seq) { return seq.generating && seq.pending == 1; }

}  // namespace

int64_t FeedableUntil(int64_t position, int64_t pending, bool generating, int granule) {
  const int64_t last = position + pending - 1;
  return generating ? last : std::max(position, last / granule * granule);
}

int64_t SliceEnd(int64_t position, int64_t feedable_until, int64_t max_tokens, int granule) {
  if (feedable_until - position <= max_tokens) return feedable_until;
  return std::max(position, (position + max_tokens) / granule * granule);
}

absl::StatusOr<Scheduler> Scheduler::Create(const SchedulerLimits& limits) {
  if (limits.prefill_granule < 1) {
    return absl::InvalidArgumentError(
        fmt::format("prefill_granule must be at least 1, got {}", limits.prefill_granule));
  }
  if (limits.max_step_tokens <= limits.prefill_granule) {
    return absl::InvalidArgumentError(
        fmt::format("max_step_tokens must be above the prefill granule of {} tokens, got {}",
                    limits.prefill_granule, limits.max_step_tokens));
  }
  if (limits.max_step_seqs < 1) {
    return absl::InvalidArgumentError(
        fmt::format("max_step_seqs must be at least 1, got {}", limits.max_step_seqs));
  }
  if (!(limits.flops_per_token > 0 && std::isfinite(limits.flops_per_token) &&
        limits.flops_per_token_and_position >= 0 && std::isfinite(limits.flops_per_token_and_position))) {
    return absl::InvalidArgumentError(fmt::format(
        "the cost model must be positive and finite, got {} per token and {} per token and position",
        limits.flops_per_token, limits.flops_per_token_and_position));
  }
  return Scheduler(limits);
}

double Scheduler::Cost(int64_t position, int64_t num_tokens) const {
  const double n = static_cast<double>(num_tokens);
  const double sum_of_positions = n * static_cast<double>(position) + n * (n - 1) / 2;
  return n * limits_.flops_per_token + sum_of_positions * limits_.flops_per_token_and_position;
}

// The most tokens, up to `max_tokens`, that cost at most `budget`.
int64_t Scheduler::TokensWithin(int64_t position, int64_t max_tokens, double budget) const {
  int64_t low = 0;
  int64_t high = max_tokens;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (Cost(position, middle) <= budget) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Returns what the decodes cost.
double Scheduler::PlanDecodes(int64_t max_decodes, StepPlan* plan) {
  if (static_cast<int64_t>(decoders_.size()) > max_decodes) {
    // Downwards from where the last turn ended, then around: whoever arrives during a round waits for the
    // next one, so a flood of newcomers cannot hold up the old ones.
    std::nth_element(decoders_.begin(), decoders_.begin() + max_decodes, decoders_.end(),
                     [this](const SeqView* a, const SeqView* b) {
                       return next_decode_arrival_ - a->arrival < next_decode_arrival_ - b->arrival;
                     });
    next_decode_arrival_ = decoders_[max_decodes]->arrival;
    decoders_.resize(max_decodes);
  }
  double cost = 0;
  for (const SeqView* seq : decoders_) {
    plan->runs.push_back({.index = seq->index, .num_tokens = 1, .decode = true});
    cost += Cost(seq->position, 1);
  }
  plan->num_decodes = static_cast<int>(decoders_.size());
  return cost;
}

void Scheduler::PlanPrefill(double decode_cost, StepPlan* plan) {
  const auto older = [](const Waiting& a, const Waiting& b) { return a.seq->arrival < b.seq->arrival; };
  const auto shorter = [&](const Waiting& a, const Waiting& b) {
    const int64_t left_a = a.feedable_until - a.seq->position;
    const int64_t left_b = b.feedable_until - b.seq->position;
    return left_a != left_b ? left_a < left_b : older(a, b);
  };
  if (shortest_first_) {
    std::sort(waiting_.begin(), waiting_.end(), shorter);
  } else {
    std::sort(waiting_.begin(), waiting_.end(), older);
  }
  if (waiting_.size() > 1) shortest_first_ = !shortest_first_;

  const int granule = limits_.prefill_granule;
  const bool beside_decodes = plan->num_decodes > 0;
  const int64_t guaranteed = std::max(granule, limits_.min_prefill_tokens);
  int64_t tokens_left = limits_.max_step_tokens - plan->num_decodes;
  double budget = decode_cost * kPrefillShare;
  for (const Waiting& waiting : waiting_) {
    if (tokens_left == 0 || static_cast<int>(plan->runs.size()) == limits_.max_step_seqs) break;
    const int64_t position = waiting.seq->position;
    int64_t max_tokens = tokens_left;
    if (beside_decodes) {
      max_tokens = TokensWithin(position, tokens_left, budget);
      if (plan->num_prefill_tokens == 0) max_tokens = std::max(max_tokens, std::min(guaranteed, tokens_left));
    }
    const int64_t num_tokens = SliceEnd(position, waiting.feedable_until, max_tokens, granule) - position;
    if (num_tokens == 0) continue;
    plan->runs.push_back({.index = waiting.seq->index, .num_tokens = static_cast<int>(num_tokens)});
    plan->num_prefill_tokens += static_cast<int>(num_tokens);
    tokens_left -= num_tokens;
    budget -= Cost(position, num_tokens);
  }
}

void Scheduler::Plan(std::span<const SeqView> seqs, StepPlan* plan) {
  plan->runs.clear();
  plan->num_decodes = 0;
  plan->num_prefill_tokens = 0;
  decoders_.clear();
  waiting_.clear();
  for (const SeqView& seq : seqs) {
    WEIR_CHECK(seq.position >= 0 && seq.pending >= 1);
    if (IsDecoder(seq)) {
      decoders_.push_back(&seq);
      continue;
    }
    const int64_t until = FeedableUntil(seq.position, seq.pending, seq.generating, limits_.prefill_granule);
    if (until > seq.position) waiting_.push_back({&seq, until});
  }

  int64_t max_decodes = std::min(limits_.max_step_seqs, limits_.max_step_tokens);
  if (!waiting_.empty() && !decoders_.empty()) {
    max_decodes = std::min(limits_.max_step_seqs - 1, limits_.max_step_tokens - limits_.prefill_granule);
    if (max_decodes == 0) {
      prefill_turn_ = !prefill_turn_;
      if (!prefill_turn_) {
        waiting_.clear();
        max_decodes = 1;
      }
    }
  }
  const double decode_cost = PlanDecodes(max_decodes, plan);
  PlanPrefill(decode_cost, plan);
}

}  // namespace weir
