#include "runtime/engine/model_step.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/device/worker_pool.h"
#include "runtime/engine/device_errors.h"
#include "runtime/ops/attention/attention_scratch.h"
#include "runtime/state/kv_pool.h"

namespace weir {
namespace {

// Sequences whose attention a GPU is to compute at once: these at least; more, up to all that decode, while
// what they need is no more than so many bytes. Each further wave of them waits for the last blocks of the
// one before.
constexpr int kAttentionSeqs = 64;
constexpr int64_t kAttentionBytes = int64_t{256} << 20;

// The most that can decode in one step: each has a slot.
int DecodeSeqs(const RunnerLimits& limits) {
  return std::min({limits.max_step_seqs, limits.max_step_tokens, limits.slots});
}

// Linear in the positions. A recorded decode step is for sequences as long as their block tables, which reach
// a block further than max_positions.
int64_t ScratchPositions(const LanguageModel& model, const RunnerLimits& limits, int max_logits,
                         int64_t max_positions) {
  const auto positions = [&](int64_t seqs) {
    return AttentionScratchPositions(max_positions + kKvBlockTokens, seqs);
  };
  const auto bytes = [&](int64_t seqs) {
    return model.WorkspaceBytes(limits.max_step_tokens, max_logits, positions(seqs), /*num_threads=*/1);
  };
  const int most = DecodeSeqs(limits);
  int seqs = std::min(most, kAttentionSeqs);
  while (seqs < most && bytes(std::min(2 * seqs, most)) - bytes(0) <= kAttentionBytes)
    seqs = std::min(2 * seqs, most);
  return positions(seqs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelStep>> ModelStep::Create(const EngineModel& model, const StepState& state,
                                                             int max_logits, Device& device) {
  const LanguageModel& lm = *model.model;
  const RunnerLimits& limits = model.limits;
  const bool paged = lm.Paged().num_layers > 0;
  const bool on_cpu = device.backend() == Backend::kCpu;
  const int64_t max_positions = paged ? std::min(lm.context_limit(), limits.kv_blocks * kKvBlockTokens) : 0;
  const auto no_room = [&](const absl::Status& status, std::string_view what) {
    return DoesNotFit(status, model.name, what,
                      "ask for fewer --max-step-tokens, or less --state-memory and --kv-memory");
  };
  absl::StatusOr<StepBatch> batch =
      StepBatch::Create(limits.max_step_tokens, limits.max_step_seqs, max_logits,
                        paged ? KvPool::BlocksFor(max_positions) + 1 : 0, device);
  if (!batch.ok()) return no_room(batch.status(), "the arrays of a step");
  std::unique_ptr<ModelStep> step(new ModelStep(model, state, device, *std::move(batch)));

  const int num_threads = on_cpu ? device.workers().num_threads() : 1;
  const int64_t scratch_positions =
      on_cpu || !paged ? max_positions : ScratchPositions(lm, limits, max_logits, max_positions);
  absl::StatusOr<DeviceBuffer> workspace =
      device.Allocate(lm.WorkspaceBytes(limits.max_step_tokens, max_logits, scratch_positions, num_threads));
  if (!workspace.ok()) return no_room(workspace.status(), "the workspace of a step");
  step->workspace_ = Workspace(*std::move(workspace));

  const int64_t logits_bytes = int64_t{max_logits} * lm.vocab_size() * static_cast<int64_t>(sizeof(float));
  absl::StatusOr<DeviceBuffer> logits = device.Allocate(logits_bytes);
  if (!logits.ok()) return no_room(logits.status(), "the logits of a step");
  step->logits_ = *std::move(logits);
  if (!on_cpu) {
    absl::StatusOr<HostBuffer> copy = device.AllocateHost(logits_bytes);
    if (!copy.ok()) return no_room(copy.status(), "the copy of the logits");
    step->logits_copy_ = *std::move(copy);
    const int32_t num_ids = std::min(lm.vocab_size(), model.text->size());
    absl::StatusOr<RowSampling> sampling = RowSampling::Create(max_logits, num_ids, device);
    if (!sampling.ok()) return no_room(sampling.status(), "the memory of sampling");
    step->sampling_.emplace(*std::move(sampling));
  }
  step->logits_host_ = reinterpret_cast<float*>(on_cpu ? step->logits_.data() : step->logits_copy_.data());
  if (!on_cpu) WEIR_RETURN_IF_ERROR(step->RecordDecodes(limits));
  return step;
}

absl::Status ModelStep::RecordDecodes(const RunnerLimits& limits) {
  WEIR_ASSIGN_OR_RETURN(graphs_, DecodeGraphs::Record(
                                     DecodeSeqs(limits), stream_,
                                     [this](int size) {
                                       batch_.Clear();
                                       batch_.PadDecode(size);
                                       batch_.Upload(stream_);
                                     },
                                     [this] { Forward(); }));
  return absl::OkStatus();
}

TensorView ModelStep::LogitsView() const {
  return {logits_.data(), DType::kF32, {batch_.num_logits(), model_.vocab_size()}};
}

void ModelStep::Forward() { model_.Forward(batch_.Input(), state_, LogitsView(), workspace_, stream_); }

absl::Status ModelStep::Compute() {
  const int size = graphs_ && batch_.IsDecode() ? graphs_->SizeFor(batch_.num_seqs()) : 0;
  if (size > 0) batch_.PadDecode(size);
  batch_.Upload(stream_);
  if (size > 0) {
    graphs_->Replay(size, stream_);
    ++replayed_steps_;
  } else {
    Forward();
  }
  if (sampling_) sampling_->Run(LogitsView(), logits_host_, stream_);
  // The one wait of a step, also of one without logits: after it the batch may be filled anew.
  return stream_.Synchronize();
}

std::span<float> ModelStep::Logits(int row) const {
  return {logits_host_ + int64_t{row} * model_.vocab_size(), static_cast<size_t>(model_.vocab_size())};
}

}  // namespace weir
