// ModelStep: the memory of one model's steps, and how one is computed: arrays to the device, Forward or its
// recording, and what was sampled of the logits back, or the logits themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/engine/decode_graphs.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/row_sampling.h"
#include "runtime/engine/step_batch.h"

namespace weir {

// Engine thread only. All is allocated at start; a step allocates nothing.
class ModelStep {
 public:
  // `model`, `device` and `state` outlive this; so does the memory that `state` shows. `max_logits`: rows
  // wanted of one step.
  static absl::StatusOr<std::unique_ptr<ModelStep>> Create(const EngineModel& model, const StepState& state,
                                                           int max_logits, Device& device);

  // To be filled before Compute.
  StepBatch& batch() { return batch_; }
  // Null where the logits lie in the host's memory. Otherwise to be filled, with every row of logits, before
  // Compute, which then brings only those to the host that it keeps for it.
  RowSampling* sampling() { return sampling_ ? &*sampling_ : nullptr; }
  // Computes the batch and waits for it. An error is the device's, which is then lost.
  absl::Status Compute();
  // Row `row` of the logits of the last step, in host memory: one that is the host's to read.
  std::span<float> Logits(int row) const;

  // Why decode steps are not recorded although the device should, or OK.
  absl::Status recording_failure() const { return graphs_ ? graphs_->failure() : absl::OkStatus(); }
  int64_t replayed_steps() const { return replayed_steps_; }

 private:
  ModelStep(const EngineModel& model, const StepState& state, Device& device, StepBatch batch)
      : model_(*model.model), state_(state), stream_(device.stream()), batch_(std::move(batch)) {}
  absl::Status RecordDecodes(const RunnerLimits& limits);
  TensorView LogitsView() const;
  void Forward();

  const LanguageModel& model_;
  const StepState state_;
  Stream& stream_;
  StepBatch batch_;
  Workspace workspace_;
  DeviceBuffer logits_;     // f32 [max_logits, vocab_size]
  HostBuffer logits_copy_;  // where the device's memory is not the host's
  float* logits_host_ = nullptr;
  std::optional<RowSampling> sampling_;
  std::optional<DecodeGraphs> graphs_;  // of a device that records
  int64_t replayed_steps_ = 0;
};

}  // namespace weir
