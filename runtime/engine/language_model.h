// LanguageModel: what the engine needs to know of a decoder, and nothing of its layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/device/workspace.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/ragged_batch.h"
#include "runtime/state/state_spec.h"

namespace weir {

struct StepInput {
  RaggedBatch batch;
  TensorView token_ids;   // i32 [num_tokens]
  TensorView logit_rows;  // i32 [num_logits]: the tokens whose logits are wanted
};

struct StepState {
  std::span<const TensorView> fixed;  // one per States() entry: f32 [slots, ...shape]
  std::span<const PagedKv> paged;     // one per layer with paged state
};

// How much work a token is, for the scheduler: flops = base + per_position · position.
struct TokenCost {
  double base = 1;
  double per_position = 0;
};

// Immutable after load: Forward is const, and all that changes is passed in.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual int32_t vocab_size() const = 0;
  virtual int64_t context_limit() const = 0;  // positions; 0: none
  virtual std::vector<StateSpec> States() const = 0;
  virtual PagedSpec Paged() const = 0;
  // Runs shorter than this many tokens, or off its multiples, give results that differ in the last bits from
  // whole chunks; 1: results do not depend on how a sequence is cut.
  virtual int prefill_granule() const = 0;
  virtual TokenCost token_cost() const = 0;
  virtual int64_t WorkspaceBytes(int max_tokens, int max_logits, int64_t max_positions,
                                 int num_threads) const = 0;
  // logits: f32 [num_logits, vocab_size]. States are updated in place by slot; slots not in the batch do not
  // change.
  virtual void Forward(const StepInput& input, const StepState& state, TensorView logits,
                       Workspace& workspace, Stream& stream) const = 0;
};

}  // namespace weir
