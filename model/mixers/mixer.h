// SequenceMixer: the layer that mixes along the sequence; everything that differs between decoders.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/device/workspace.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/ragged_batch.h"
#include "runtime/state/state_spec.h"

namespace weir {

// Immutable after load, so Forward is const and needs no lock; all that changes is passed in.
class SequenceMixer {
 public:
  virtual ~SequenceMixer() = default;

  // Fixed state of one sequence in this layer; empty for paged mixers.
  virtual std::vector<StateSpec> States() const { return {}; }
  // Paged state of this layer (num_layers 1), or none.
  virtual PagedSpec Paged() const { return {}; }
  virtual int64_t parameter_count() const = 0;
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t WorkspaceBytes(int max_tokens, int64_t max_positions, int num_threads) const = 0;

  struct State {
    std::span<const TensorView> fixed;  // one per States() entry: f32 [slots, ...shape]
    const PagedKv* paged = nullptr;     // where Paged() says so
  };
  // x: f32 [num_tokens, d_model], normalised. The layer's output is added to `residual`, same shape.
  virtual void Forward(const RaggedBatch& batch, const TensorView& x, const State& state,
                       const TensorView& residual, Workspace& workspace, Stream& stream) const = 0;
};

}  // namespace weir
