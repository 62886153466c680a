#include "tests/support/model_harness.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/base/check.h"
#include "runtime/device/worker_pool.h"

namespace weir::testing {

ModelHarness::ModelHarness(std::shared_ptr<const LanguageModel> model, Device& device,
                           const HarnessOptions& options)
    : model_(std::move(model)), device_(device), options_(options) {
  arena_.emplace(*StateArena::Create(model_->States(), options.slots, device));
  kv_.emplace(*KvPool::Create(model_->Paged(), options.kv_blocks, device));
  const int64_t max_positions = kv_->num_blocks() * kKvBlockTokens;
  const int max_logits = options.max_logits > 0 ? options.max_logits : options.max_tokens;
  batch_.emplace(
      *StepBatch::Create(options.max_tokens, options.slots, max_logits, kv_->num_blocks(), device));
  const int threads = device.backend() == Backend::kCpu ? device.workers().num_threads() : 1;
  workspace_ = Workspace(
      *device.Allocate(model_->WorkspaceBytes(options.max_tokens, max_logits, max_positions, threads)));
  const int64_t logits_bytes =
      int64_t{max_logits} * model_->vocab_size() * static_cast<int64_t>(sizeof(float));
  logits_ = *device.Allocate(logits_bytes);
  if (device.backend() != Backend::kCpu) logits_copy_ = *device.AllocateHost(logits_bytes);
}

ModelHarness::Sequence ModelHarness::NewSequence(int64_t reserved) {
  Sequence sequence;
  std::optional<StateSlot> slot = arena_->Claim();
  WEIR_CHECK(slot.has_value());
  sequence.slot = *std::move(slot);
  if (kv_->num_blocks() > 0) WEIR_CHECK(sequence.blocks.Reserve(&*kv_, reserved));
  return sequence;
}

ModelHarness::Sequence ModelHarness::Fork(const Sequence& parent, int64_t reserved) {
  const auto blocks = static_cast<int64_t>(parent.blocks.blocks().size());
  Sequence sequence = NewSequence(std::max(blocks * kKvBlockTokens, reserved));
  arena_->Copy(parent.slot, sequence.slot);
  kv_->Copy(parent.blocks, sequence.blocks);
  sequence.position = parent.position;
  return sequence;
}

TensorView ModelHarness::StepInPlace(std::span<const Slice> slices) {
  batch_->Clear();
  for (const Slice& slice : slices) {
    const int64_t end = slice.sequence->position + static_cast<int64_t>(slice.tokens.size());
    if (kv_->num_blocks() > 0) WEIR_CHECK(slice.sequence->blocks.Reserve(&*kv_, end));
    batch_->AddRun(slice.sequence->slot.index(), slice.sequence->position, slice.tokens,
                   slice.sequence->blocks.blocks(), slice.num_logits);
  }
  batch_->Upload(device_.stream());
  const TensorView logits(logits_.data(), DType::kF32, {batch_->num_logits(), model_->vocab_size()});
  model_->Forward(batch_->Input(), {arena_->tensors(), kv_->layers()}, logits, workspace_, device_.stream());
  const bool copied = logits_copy_.bytes() > 0;
  if (copied)
    device_.stream().CopyToHost(logits_copy_.data(), logits_.data(),
                                logits.num_elements() * static_cast<int64_t>(sizeof(float)));
  WEIR_CHECK(device_.stream().Synchronize().ok());
  for (const Slice& slice : slices) slice.sequence->position += static_cast<int64_t>(slice.tokens.size());
  return copied ? logits.On(logits_copy_.data()) : logits;
}

std::vector<std::vector<float>> ModelHarness::Step(const std::vector<Run>& runs) {
  slices_.clear();
  for (const Run& run : runs)
    slices_.push_back({run.sequence, run.tokens, static_cast<int>(run.tokens.size())});
  const TensorView logits = StepInPlace(slices_);
  std::vector<std::vector<float>> out;
  for (int64_t t = 0; t < logits.num_rows(); ++t)
    out.emplace_back(logits.row<float>(t), logits.row<float>(t) + model_->vocab_size());
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
  arena_->Read(sequence.slot, 0, arena_->slot_bytes(), state.data());
  WEIR_CHECK(device_.stream().Synchronize().ok());
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
