// Whole decoders of random weights through the engine's own step: batch to the device, the recorded or the
// plain Forward, sampling on the device, and what was sampled back. Times are the host's, per step.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/loaded_model.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/model_step.h"
#include "runtime/state/kv_pool.h"
#include "runtime/state/state_arena.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::bench {
namespace {

constexpr const char* kFamilies[] = {"linear_attention", "performer", "mamba", "mamba2", "softmax"};
constexpr int kDepth = 1024;  // of decoding softmax sessions
constexpr int kRoom = 64;     // steps before they go back to it
constexpr double kMinFreeShare = 0.1;

absl::StatusOr<LoadedModel> RandomModel(GpuBench& bench, const std::string& mixer, int64_t max_positions) {
  testing::TinyModelOptions options = SyntheticOptions(mixer);
  if (bench.tiny()) {
    options = testing::TinyModelOptions();
    options.mixer = mixer;
    options.dtype = DType::kBF16;
    options.num_layers = 1;
    if (mixer == "mamba2") options.num_kv_heads = 1;
  }
  const testing::TempDir folder;
  testing::WriteTinyModel(folder.path(), options);
  if (mixer == "softmax") SetMaxPositions(folder.path(), static_cast<int>(max_positions));
  LoadOptions ids_only;
  ids_only.ids_only = true;
  return LoadModel(folder.path(), bench.device(), ids_only);
}

// Bytes of state that one decoded token moves: undecayed states' outer level is read alone.
double StateTraffic(const LanguageModel& model, int64_t depth) {
  double bytes = 0;
  for (const StateSpec& spec : model.States())
    bytes += 4.0 * static_cast<double>(spec.num_elements()) *
             (spec.name.find("outer") == std::string::npos ? 2 : 1);
  return bytes + static_cast<double>(model.Paged().block_bytes(1) * depth);
}

// A model, the memory of `slots` sequences of up to `positions` tokens, and its steps.
class DecoderUnderLoad {
 public:
  static absl::StatusOr<std::unique_ptr<DecoderUnderLoad>> Create(const LoadedModel& model, int slots,
                                                                  int64_t positions, int step_tokens,
                                                                  Device& device) {
    std::unique_ptr<DecoderUnderLoad> load(new DecoderUnderLoad);
    RunnerLimits limits;
    limits.slots = slots;
    limits.max_step_tokens = step_tokens;
    limits.max_step_seqs = slots;
    load->blocks_each_ = model.decoder->Paged().num_layers > 0 ? KvPool::BlocksFor(positions) : 0;
    limits.kv_blocks = load->blocks_each_ * slots;
    load->slots_ = slots;
    load->vocab_ = model.decoder->vocab_size();
    load->model_ = EngineModelOf(model, limits);
    WEIR_ASSIGN_OR_RETURN(StateArena arena, StateArena::Create(model.decoder->States(), slots, device));
    load->arena_.emplace(std::move(arena));
    WEIR_ASSIGN_OR_RETURN(KvPool kv, KvPool::Create(model.decoder->Paged(), limits.kv_blocks, device));
    load->kv_.emplace(std::move(kv));
    WEIR_ASSIGN_OR_RETURN(
        load->step_,
        ModelStep::Create(load->model_, {load->arena_->tensors(), load->kv_->layers()}, slots, device));
    return load;
  }

  const ModelStep& step() const { return *step_; }

  // One step: `tokens` of each of the first `sequences`, from `position` on.
  absl::StatusOr<double> Step(int sequences, int64_t position, int tokens, bool sample) {
    const auto start = Clock::now();
    StepBatch& batch = step_->batch();
    batch.Clear();
    ids_.resize(static_cast<size_t>(tokens));
    blocks_.resize(static_cast<size_t>(blocks_each_ > 0 ? KvPool::BlocksFor(position + tokens) : 0));
    for (int n = 0; n < sequences; ++n) {
      for (int32_t& id : ids_) id = NextId();
      for (size_t i = 0; i < blocks_.size(); ++i)
        blocks_[i] = static_cast<int32_t>(static_cast<int64_t>(i) * slots_ + n);
      batch.AddRun(n, position, ids_, blocks_, sample ? 1 : 0);
    }
    RowSampling* const sampling = step_->sampling();
    sampling->Clear();
    if (sample) {
      SamplingParams params;
      params.temperature = 0.8f;
      params.top_p = 0.95f;
      for (int n = 0; n < sequences; ++n) sampling->Add(n, params, static_cast<uint64_t>(position), {});
    }
    WEIR_RETURN_IF_ERROR(step_->Compute());
    for (int n = 0; sample && n < sequences; ++n)
      if (sampling->IsOnHost(n) || sampling->Result(n).token < 0)
        return absl::InternalError("a row of logits was not sampled on the device");
    return SecondsSince(start);
  }

 private:
  DecoderUnderLoad() = default;
  int32_t NextId() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<int32_t>((state_ >> 8) % static_cast<uint32_t>(vocab_));
  }

  EngineModel model_;
  int slots_ = 0;
  int32_t vocab_ = 0;
  int64_t blocks_each_ = 0;
  std::optional<StateArena> arena_;
  std::optional<KvPool> kv_;
  std::unique_ptr<ModelStep> step_;
  std::vector<int32_t> ids_, blocks_;
  uint32_t state_ = 1;
};

// Whether the memory of so many sequences fits beside what is there: states and cache, logits, and the
// workspace of a step.
bool Fits(const LanguageModel& model, int slots, int64_t positions, int step_tokens) {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return false;
  const int64_t each =
      StateArena::SlotBytes(model.States()) + model.Paged().block_bytes(1) * (positions + kKvBlockTokens);
  const int64_t bytes = slots * (each + 4 * int64_t{model.vocab_size()}) +
                        model.WorkspaceBytes(step_tokens, slots, positions, 1);
  return static_cast<double>(bytes) < static_cast<double>(free) - kMinFreeShare * static_cast<double>(total);
}

absl::StatusOr<double> MedianDecode(GpuBench& bench, DecoderUnderLoad& load, int sessions) {
  constexpr double kSeconds = 0.8;
  const int64_t depth = bench.Pick(kDepth, 40);
  std::vector<double> seconds;
  const double start = bench.Seconds();
  for (int step = -2; step < 200; ++step) {
    const absl::StatusOr<double> one = load.Step(sessions, depth + (step + 2) % kRoom, 1, true);
    if (!one.ok()) return one;
    if (step >= 0) seconds.push_back(*one);
    if (seconds.size() >= bench.Pick<size_t>(5, 1) && bench.Seconds() - start > bench.Pick(kSeconds, 0.0))
      break;
  }
  return Quantile(&seconds, 0.5);
}

GpuRow DecodeRow(const std::string& mixer, int sessions) {
  return {.name = "decode, " + mixer,
          .size = fmt::format("{} sessions", sessions),
          .counted = mixer == "softmax" ? "weights, keys and values; 2 operations a parameter and session"
                                        : "weights, states; 2 operations a parameter and session"};
}

void Decode(GpuBench& bench, const std::string& mixer, const std::vector<int>& batches) {
  if (!bench.Wants("decode, " + mixer)) return;
  const auto skip_all = [&](const absl::StatusOr<double>& why) {
    for (const int sessions : batches) bench.Add(DecodeRow(mixer, sessions), why);
  };
  if (bench.TimeIsUp()) {
    for (const int sessions : batches) bench.Skip(DecodeRow(mixer, sessions), "skipped: no time left");
    return;
  }
  const int64_t positions = bench.Pick<int64_t>(kDepth + kRoom, 104);
  const absl::StatusOr<LoadedModel> model = RandomModel(bench, mixer, bench.Pick<int64_t>(2048, 128));
  if (!model.ok()) return skip_all(model.status());
  size_t fitting = batches.size();
  while (fitting > 0 && !Fits(*model->decoder, batches[fitting - 1], positions, batches[fitting - 1]))
    --fitting;
  if (fitting == 0) return skip_all(absl::ResourceExhaustedError(""));
  const int slots = batches[fitting - 1];
  absl::StatusOr<std::unique_ptr<DecoderUnderLoad>> load =
      DecoderUnderLoad::Create(*model, slots, positions, slots, bench.device());
  if (!load.ok()) return skip_all(load.status());
  if (!(*load)->step().recording_failure().ok()) return skip_all((*load)->step().recording_failure());
  for (const int sessions : batches) {
    GpuRow row = DecodeRow(mixer, sessions);
    row.tokens = sessions;
    row.bytes = static_cast<double>(model->weight_bytes) +
                sessions * StateTraffic(*model->decoder, bench.Pick(kDepth, 40));
    row.operations = 2.0 * static_cast<double>(model->parameter_count) * sessions;
    if (sessions > slots)
      bench.Skip(row, "skipped: does not fit");
    else if (bench.TimeIsUp())
      bench.Skip(row, "skipped: no time left");
    else
      bench.Add(row, MedianDecode(bench, **load, sessions));
  }
}

GpuRow PrefillRow(const std::string& mixer, int tokens) {
  return {.name = "prefill, " + mixer, .size = fmt::format("{} tokens", tokens)};
}

// A whole prompt of one sequence.
absl::StatusOr<double> Prefill(GpuBench& bench, DecoderUnderLoad& load, int tokens, int step_tokens) {
  double seconds = 0;
  for (int at = 0; at < tokens; at += step_tokens) {
    const int n = std::min(step_tokens, tokens - at);
    const absl::StatusOr<double> one = load.Step(1, at, n, at + n == tokens);
    if (!one.ok()) return one;
    seconds += *one;
    if (bench.TimeIsUp()) return absl::DeadlineExceededError(fmt::format("{} tokens", at + n));
  }
  return seconds;
}

// Tokens a second at each length; 0: not measured.
std::vector<double> Prefill(GpuBench& bench, const std::string& mixer, const std::vector<int>& lengths) {
  std::vector<double> rates(lengths.size(), 0.0);
  if (!bench.Wants("prefill, " + mixer)) return rates;
  if (bench.TimeIsUp()) {
    for (const int tokens : lengths) bench.Skip(PrefillRow(mixer, tokens), "skipped: no time left");
    return rates;
  }
  const int step_tokens = bench.Pick(2048, 64);
  const absl::StatusOr<LoadedModel> model = RandomModel(bench, mixer, lengths.back());
  const auto make = [&]() -> absl::StatusOr<std::unique_ptr<DecoderUnderLoad>> {
    if (!model.ok()) return model.status();
    return DecoderUnderLoad::Create(*model, 1, lengths.back(), step_tokens, bench.device());
  };
  const absl::StatusOr<std::unique_ptr<DecoderUnderLoad>> load = make();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int tokens = lengths[i];
    GpuRow row = PrefillRow(mixer, tokens);
    if (!load.ok()) {
      bench.Add(row, load.status());
      continue;
    }
    const TokenCost cost = model->decoder->token_cost();
    row.counted = fmt::format("2 operations a parameter and token, and attention; steps of {}", step_tokens);
    row.tokens = tokens;
    row.operations = tokens * (cost.base + cost.per_position * tokens / 2);
    absl::StatusOr<double> seconds = 0.0;
    if (i == 0)
      seconds = Prefill(bench, **load, std::min(tokens, step_tokens), step_tokens);  // loads kernels
    if (seconds.ok()) seconds = Prefill(bench, **load, tokens, step_tokens);
    if (absl::IsDeadlineExceeded(seconds.status())) {
      bench.Skip(row, fmt::format("skipped: no time left after {}", std::string(seconds.status().message())));
      continue;
    }
    bench.Add(row, seconds);
    if (seconds.ok()) rates[i] = tokens / *seconds;
  }
  return rates;
}

}  // namespace

void ModelRows(GpuBench& bench) {
  bench.Section("Decode, whole models", 0.3);
  const std::vector<int> batches = bench.tiny() ? std::vector<int>{1, 3} : std::vector<int>{1, 64, 512, 4096};
  for (const char* const mixer : kFamilies) Decode(bench, mixer, batches);

  bench.Section("Prefill, whole models", 0.16);
  const std::vector<int> lengths =
      bench.tiny() ? std::vector<int>{70} : std::vector<int>{2048, 16384, 131072};
  const std::vector<double> linear = Prefill(bench, "linear_attention", lengths);
  const std::vector<double> softmax = Prefill(bench, "softmax", lengths);
  bench.report().Text("");
  for (size_t i = 0; i < lengths.size(); ++i)
    if (linear[i] > 0 && softmax[i] > 0)
      bench.report().Text(fmt::format("Prefill of {} tokens: linear is {:.2f} times as fast as flash.",
                                      lengths[i], linear[i] / softmax[i]));
}

}  // namespace weir::bench
