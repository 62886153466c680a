// ModelHarness: a LanguageModel and its state memory, driven step by step without an engine, on any device;
// for tests of the laws and for benchmarks of a model alone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/language_model.h"
#include "runtime/engine/step_batch.h"
#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"

namespace weir::testing {

struct HarnessOptions {
  int slots = 8;
  int64_t kv_blocks = 256;
  int max_tokens = 2048;  // per step
  int max_logits = 0;     // rows per step; 0: max_tokens
  int num_threads = 2;
};

class ModelHarness {
 public:
  ModelHarness(std::shared_ptr<const LanguageModel> model, Device& device,
               const HarnessOptions& options = {});

  // One sequence and its place in memory.
  struct Sequence {
    StateSlot slot;
    BlockTable blocks;
    int64_t position = 0;
  };
  // Blocks for `reserved` positions at once, so that steps up to there do not allocate.
  Sequence NewSequence(int64_t reserved = 0);
  // A sequence with the same contents in memory of its own.
  Sequence Fork(const Sequence& parent, int64_t reserved = 0);

  struct Run {
    Sequence* sequence;
    std::vector<int32_t> tokens;
  };
  // One step over all runs; logits of every token, in the order of the runs: [num_tokens][vocab_size].
  std::vector<std::vector<float>> Step(const std::vector<Run>& runs);
  struct Slice {
    Sequence* sequence;
    std::span<const int32_t> tokens;
    int num_logits = 1;  // of its last tokens
  };
  // One step; the logits, f32 [num_logits, vocab_size] in host memory, until the next step. On the CPU they
  // stay where the model wrote them.
  TensorView StepInPlace(std::span<const Slice> slices);
  // Feeds `tokens` cut into calls of the given sizes (the last size repeats); logits of every token.
  std::vector<std::vector<float>> Feed(Sequence* sequence, const std::vector<int32_t>& tokens,
                                       std::vector<int> cuts);
  // The sequence's fixed state, and the KV blocks that hold tokens.
  std::vector<float> State(const Sequence& sequence);

  StateArena& arena() { return *arena_; }
  StepState state() const { return {arena_->tensors(), kv_->layers()}; }
  const LanguageModel& model() const { return *model_; }
  const std::shared_ptr<const LanguageModel>& shared_model() const { return model_; }
  const HarnessOptions& options() const { return options_; }

 private:
  std::shared_ptr<const LanguageModel> model_;
  Device& device_;
  std::optional<StateArena> arena_;
  std::optional<KvPool> kv_;
  std::optional<StepBatch> batch_;
  Workspace workspace_;
  DeviceBuffer logits_;
  HostBuffer logits_copy_;  // where the device's memory is not the host's
  const HarnessOptions options_;
  std::vector<Slice> slices_;  // of Step()
};

// Largest |a - b| over the largest |b|, row by row; NaN when there is one.
double MaxRelativeError(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b);
double MaxRelativeError(const std::vector<float>& a, const std::vector<float>& b);
std::vector<int32_t> RandomTokens(int n, int32_t vocab_size, unsigned seed);
int32_t ArgMax(const std::vector<float>& row);

}  // namespace weir::testing
