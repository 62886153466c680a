// FakeModel: a LanguageModel whose next token depends on its whole state, so that a lost, doubled or mixed-up
// state shows in the tokens. Costs next to nothing per token. Runs on the CPU and, in programs that link its
// CUDA kernel (tests/cuda), on a GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/engine/engine.h"

namespace weir::testing {

struct FakeModelOptions {
  int32_t vocab_size = 64;
  int granule = 4;  // chunk borders, as a real mixer has them
  int64_t context_limit = 0;
  bool paged = false;  // keep keys in KV blocks as well, and check them at every token
  absl::Duration step_time = absl::ZeroDuration();  // slept in each Forward
  int32_t eos_id = -1;                              // never the next token unless named here
  // The step that first sees this id makes that sequence's logits NaN.
  int32_t poison_id = -1;
  int64_t ballast_floats = 0;  // of further state, which nothing reads: for sessions of many megabytes
};

// State: two f32 words, a 24-bit hash of all tokens so far and their number. The next token is a function of
// both.
class FakeModel final : public LanguageModel {
 public:
  explicit FakeModel(const FakeModelOptions& options) : options_(options) {}
  int32_t vocab_size() const override { return options_.vocab_size; }
  int64_t context_limit() const override { return options_.context_limit; }
  std::vector<StateSpec> States() const override {
    if (options_.ballast_floats == 0) return {{"hash", {2}}};
    return {{"hash", {2}}, {"ballast", {options_.ballast_floats}}};
  }
  PagedSpec Paged() const override;
  int prefill_granule() const override { return options_.granule; }
  TokenCost token_cost() const override { return {}; }
  int64_t WorkspaceBytes(int, int, int64_t, int) const override { return 0; }
  void Forward(const StepInput& input, const StepState& state, TensorView logits, Workspace& workspace,
               Stream& stream) const override;

  // What the model says after `tokens`: the truth that tests compare with.
  static int32_t NextToken(const std::vector<int32_t>& tokens, int32_t vocab_size);
  // `prompt` and then n greedy tokens; the generated part.
  static std::vector<int32_t> Generate(std::vector<int32_t> prompt, int n, int32_t vocab_size = 64);

  // Calls of Forward and the tokens in them; replays of a recorded decode step are not among them.
  int64_t steps() const { return steps_.load(); }
  int64_t tokens() const { return tokens_.load(); }
  // Called at the start of each step with its packed batch; for tests that look inside (on the CPU).
  std::function<void(const StepInput&, const StepState&)> on_step;

 private:
  const FakeModelOptions options_;
  mutable std::atomic<int64_t> steps_{0};
  mutable std::atomic<int64_t> tokens_{0};
};

// Each id is one printable character: 'a' + id % 26, with a space after every eighth id.
class FakeText final : public TokenText {
 public:
  explicit FakeText(int32_t size = 64);
  // Every id's bytes, as a test wants them.
  explicit FakeText(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  std::string_view Piece(int32_t id, bool) const override { return pieces_[id]; }
  bool IsSpecial(int32_t id) const override { return pieces_[id].empty(); }
  int32_t size() const override { return static_cast<int32_t>(pieces_.size()); }

 private:
  std::vector<std::string> pieces_;
};

// An EngineModel over a FakeModel; `model` gets the instance for its counters.
EngineModel MakeFakeEngineModel(const FakeModelOptions& options, const RunnerLimits& limits,
                                std::shared_ptr<FakeModel>* model = nullptr);

}  // namespace weir::testing
