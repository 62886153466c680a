#include "tests/support/model_harness.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"

namespace weir::testing {

ModelHarness::ModelHarness(std::shared_ptr<const LanguageModel> model, Device& device,
                           const HarnessOptions& options)
    : model_(std::move(model)), device_(device), max_tokens_(options.max_tokens) {
  arena_.emplace(*StateArena::Create(model_->States(), options.slots, device));
  kv_.emplace(*KvPool::Create(model_->Paged(), options.kv_blocks, device));
  const int64_t max_positions = kv_->num_blocks() * kKvBlockTokens;
  batch_.emplace(*StepBatch::Create(max_tokens_, options.slots, max_tokens_, kv_->num_blocks(), device));
  const int threads = PoolOf(device.stream()).num_threads();
  workspace_ =
      Workspace(*device.Allocate(model_->WorkspaceBytes(max_tokens_, max_tokens_, max_positions, threads)));
  logits_ =
      *device.Allocate(int64_t{max_tokens_} * model_->vocab_size() * static_cast<int64_t>(sizeof(float)));
}

ModelHarness::Sequence ModelHarness::NewSequence() {
  Sequence sequence;
  std::optional<StateSlot> slot = arena_->Claim();
  WEIR_CHECK(slot.has_value());
  sequence.slot = *std::move(slot);
  return sequence;
}

std::vector<std::vector<float>> ModelHarness::Step(const std::vector<Run>& runs) {
  batch_->Clear();
  for (const Run& run : runs) {
    const auto n = static_cast<int64_t>(run.tokens.size());
    if (kv_->num_blocks() > 0) WEIR_CHECK(run.sequence->blocks.Reserve(&*kv_, run.sequence->position + n));
    batch_->AddRun(run.sequence->slot.index(), run.sequence->position, run.tokens,
                   run.sequence->blocks.blocks(), static_cast<int>(n));
  }
  const StepInput input = batch_->Upload(device_.stream());
  const int64_t vocab = model_->vocab_size();
  const TensorView logits(logits_.data(), DType::kF32, {input.batch.num_tokens, vocab});
  model_->Forward(input, {arena_->tensors(), kv_->layers()}, logits, workspace_, device_.stream());
  WEIR_CHECK(device_.stream().Synchronize().ok());
  for (const Run& run : runs) run.sequence->position += static_cast<int64_t>(run.tokens.size());
  std::vector<std::vector<float>> out;
  for (int64_t t = 0; t < input.batch.num_tokens; ++t)
    out.emplace_back(logits.row<float>(t), logits.row<float>(t) + vocab);
  return out;
}

std::vector<std::vector<float>> ModelHarness::Feed(Sequence* sequence, const std::vector<int32_t>& tokens,
                                                   std::vector<int> cuts) {
  std::vector<std::vector<float>> out;
  size_t at = 0;
  for (size_t cut = 0; at < tokens.size(); cut = std::min(cut + 1, cuts.size() - 1)) {
    const size_t n = std::min(static_cast<size_t>(cuts[cut]), tokens.size() - at);
    const auto begin = tokens.begin() + static_cast<int64_t>(at);
    for (auto& row : Step({{sequence, std::vector<int32_t>(begin, begin + static_cast<int64_t>(n))}}))
      out.push_back(std::move(row));
    at += n;
  }
  return out;
}

std::vector<float> ModelHarness::State(const Sequence& sequence) {
  std::vector<float> state(arena_->slot_bytes() / sizeof(float));
  arena_->Read(sequence.slot, state.data());
  return state;
}

double MaxRelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  WEIR_CHECK(a.size() == b.size());
  double scale = 1e-30;
  for (const float x : b) scale = std::max(scale, std::abs(static_cast<double>(x)));
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]) / scale;
    if (!(error <= worst)) worst = error;  // a NaN is the worst of all
  }
  return worst;
}

double MaxRelativeError(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  WEIR_CHECK(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = MaxRelativeError(a[i], b[i]);
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

std::vector<int32_t> RandomTokens(int n, int32_t vocab_size, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& id : tokens) id = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab_size));
  return tokens;
}

int32_t ArgMax(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace weir::testing
