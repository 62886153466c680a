// The model alone, without engine and sampler, at the shapes of a 135M Llama and of mamba-130m and with
// random weights: decode of 1 to 256 sequences, decode at depth, prefill and loading, held against what the
// machine allows in the same run. Rates are those of the median step.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/isa.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/model_harness.h"
#include "tests/support/temp_dir.h"

namespace weir::bench {
namespace {

using testing::ModelHarness;

constexpr int kThreads = 2;
constexpr int64_t kShortDepth = 128;  // of the sequences that are batched
constexpr int64_t kRoom = 64;         // steps before a sequence goes back to its depth
constexpr int kPrefillStep = 512;     // tokens a step, the server's default

struct Limits {
  double bandwidth, matmul, dnnl, registers;
};

Device& TheDevice() {
  static const std::unique_ptr<Device> device = CreateCpuDevice(kThreads);
  return *device;
}

const Limits& TheLimits() {
  static const Limits limits = [] {
    Limits l{};
    l.bandwidth = ReadBandwidth(TheDevice());
    l.registers = RegisterPeak(TheDevice());
    l.matmul = MatmulPeak(TheDevice());
    l.dnnl = DnnlPeak(kThreads);
    fmt::print(
        "limits: read {:.1f} GB/s; bf16 products 2048^3: Weir {:.0f} ({}), oneDNN {:.0f}, AVX512-BF16 in "
        "registers {:.0f} GFLOP/s; {} threads\n",
        l.bandwidth * 1e-9, l.matmul * 1e-9, MatmulIsaName(CurrentMatmulIsa()), l.dnnl * 1e-9,
        l.registers * 1e-9, kThreads);
    return l;
  }();
  return limits;
}

const LoadedModel& TheModel(const std::string& mixer) {
  static std::map<std::string, LoadedModel> models;
  const auto it = models.find(mixer);
  if (it != models.end()) return it->second;
  return models.emplace(mixer, Synthesize(mixer, TheDevice())).first->second;
}

// One harness at a time: google-benchmark calls a function several times to find its number of iterations,
// and the sequences are kept meanwhile.
struct Setup {
  std::string key;
  std::optional<ModelHarness> harness;
  std::vector<ModelHarness::Sequence> sequences;
  std::vector<int32_t> tokens;

  Setup() { TheDevice(); }  // so that it outlives the memory that is held here
  ~Setup() { sequences.clear(); }

  // True when a new harness was made.
  bool Make(const std::string& new_key, const std::string& mixer, const testing::HarnessOptions& options) {
    TheLimits();
    if (key == new_key) return false;
    sequences.clear();
    harness.reset();
    harness.emplace(TheModel(mixer).decoder, TheDevice(), options);
    tokens = testing::RandomTokens(1 << 15, harness->model().vocab_size(), 7);
    key = new_key;
    return true;
  }

  void Prefill(ModelHarness::Sequence* sequence, int64_t until) {
    while (sequence->position < until) {
      const int64_t n = std::min<int64_t>(kPrefillStep, until - sequence->position);
      const ModelHarness::Slice slice{sequence, std::span(tokens).subspan(sequence->position, n), 1};
      harness->StepInPlace({&slice, 1});
    }
  }
};
Setup setup;

// Bytes of state that one decoded token at `depth` moves: two levels of S and z, of which the inner one is
// read and written and the outer one read, or the cached keys and values.
double StateTraffic(const LanguageModel& model, int64_t depth) {
  double bytes = 0;
  for (const StateSpec& spec : model.States())
    bytes +=
        static_cast<double>(spec.num_elements()) * 4 * (spec.name.find("outer") == std::string::npos ? 2 : 1);
  return bytes + static_cast<double>(model.Paged().block_bytes(1) * depth);
}

// One token of each sequence per step, always at `depth`; the median step in seconds.
double DecodeSteps(benchmark::State& state, int64_t depth) {
  std::vector<ModelHarness::Slice> slices(setup.sequences.size());
  std::vector<double> seconds;
  seconds.reserve(1 << 20);
  int64_t step = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < slices.size(); ++i) {
      setup.sequences[i].position = depth + step % kRoom;
      slices[i] = {&setup.sequences[i], std::span(setup.tokens).subspan((step * 31 + i) % 32768, 1), 1};
    }
    ++step;
    const auto start = Clock::now();
    const TensorView logits = setup.harness->StepInPlace(slices);
    seconds.push_back(SecondsSince(start));
    benchmark::DoNotOptimize(logits.raw());
  }
  for (auto& sequence : setup.sequences) sequence.position = depth;
  return Quantile(&seconds, 0.5);
}

// Counters: tokens/s of all sequences; times_batch_1; of_read: weight bytes read a second over the read
// bandwidth (the aim at batch 1); of_read_with_state: the same with the bytes of state; of_limit: the time
// that reading the weights or, where it takes longer, multiplying with them at the rate of Weir's own 2048^3
// takes, and moving the state, over the time of a step.
void BM_Decode(benchmark::State& state, const std::string& mixer) {
  static std::map<std::string, double> batch_1;
  const auto batch = state.range(0);
  testing::HarnessOptions options;
  options.slots = static_cast<int>(batch);
  options.kv_blocks = batch * KvPool::BlocksFor(kShortDepth + kRoom);
  options.max_tokens = std::max<int>(kPrefillStep, static_cast<int>(batch));
  options.max_logits = static_cast<int>(batch);
  if (setup.Make(fmt::format("{} batch {}", mixer, batch), mixer, options)) {
    setup.sequences.push_back(setup.harness->NewSequence(kShortDepth + kRoom));
    setup.Prefill(&setup.sequences[0], kShortDepth);
    while (std::ssize(setup.sequences) < batch)
      setup.sequences.push_back(setup.harness->Fork(setup.sequences[0], kShortDepth + kRoom));
  }
  const double step = DecodeSteps(state, kShortDepth);
  const LoadedModel& model = TheModel(mixer);
  const double weights = static_cast<double>(model.weight_bytes);
  const double rate = static_cast<double>(batch) / step;
  if (batch == 1) batch_1[mixer] = rate;
  state.counters["tokens/s"] = rate;
  if (batch_1[mixer] > 0) state.counters["times_batch_1"] = rate / batch_1[mixer];
  state.counters["of_read"] = weights / step / TheLimits().bandwidth;
  const double states = static_cast<double>(batch) * StateTraffic(*model.decoder, kShortDepth);
  state.counters["of_read_with_state"] = (weights + states) / step / TheLimits().bandwidth;
  // A tied model multiplies with each of its parameters once per token.
  const double flops = 2.0 * static_cast<double>(model.parameter_count) * static_cast<double>(batch);
  const double products = std::max(weights / TheLimits().bandwidth, flops / TheLimits().matmul);
  state.counters["of_limit"] = (products + states / TheLimits().bandwidth) / step;
}

// One softmax sequence at depth range(0). Counters: tokens/s; of_allowed: over what the bytes of weights and
// KV allow at the read bandwidth; the same for the KV part alone is in the attention benchmark.
void BM_DecodeAtDepth(benchmark::State& state) {
  constexpr int64_t kDeepest = 16384;
  const int64_t depth = state.range(0);
  testing::HarnessOptions options;
  options.slots = 1;
  options.kv_blocks = KvPool::BlocksFor(kDeepest + kRoom);
  options.max_tokens = kPrefillStep;
  options.max_logits = 1;
  if (setup.Make("depth", "softmax", options))
    setup.sequences.push_back(setup.harness->NewSequence(kDeepest + kRoom));
  setup.Prefill(&setup.sequences[0], depth);  // goes on from where the shallower one stood
  WEIR_CHECK(setup.sequences[0].position == depth);
  const double step = DecodeSteps(state, depth);
  const LoadedModel& model = TheModel("softmax");
  const double bytes = static_cast<double>(model.weight_bytes) + StateTraffic(*model.decoder, depth);
  state.counters["tokens/s"] = 1 / step;
  state.counters["MB_a_token"] = bytes * 1e-6;
  state.counters["of_allowed"] = bytes / step / TheLimits().bandwidth;
}

// A prompt of range(0) tokens in steps of 512, logits of the last token only. Counters: tokens/s; GFLOP/s of
// the weights' products and attention; their share of the peaks; of_aim: over `aim` tokens/s, scaled by
// oneDNN's 2048^3 in this run over 1.5 TFLOP/s.
void BM_Prefill(benchmark::State& state, const std::string& mixer, double aim) {
  const int64_t n = state.range(0);
  testing::HarnessOptions options;
  options.slots = 1;
  options.kv_blocks = KvPool::BlocksFor(n);
  options.max_tokens = kPrefillStep;
  options.max_logits = 1;
  if (setup.Make(fmt::format("{} prefill {}", mixer, n), mixer, options))
    setup.sequences.push_back(setup.harness->NewSequence(n));
  std::vector<double> seconds;
  for (auto _ : state) {
    setup.sequences[0].position = 0;  // what the state holds does not change the time
    const auto start = Clock::now();
    setup.Prefill(&setup.sequences[0], n);
    seconds.push_back(SecondsSince(start));
  }
  const double rate = static_cast<double>(n) / Quantile(&seconds, 0.5);
  const TokenCost cost = TheModel(mixer).decoder->token_cost();
  const double flops = rate * (cost.base + cost.per_position * static_cast<double>(n) / 2);
  const Limits& limits = TheLimits();
  state.counters["tokens/s"] = rate;
  state.counters["GFLOP/s"] = flops * 1e-9;
  state.counters["of_matmul_2048"] = flops / limits.matmul;
  if (limits.registers > 0) state.counters["of_registers"] = flops / limits.registers;
  if (limits.dnnl > 0) state.counters["of_aim"] = rate / (aim * limits.dnnl / 1.5e12);
}

// From a folder on disk, in the page cache, to a model that can serve.
// Counter: bytes of weights a second.
void BM_Load(benchmark::State& state, const std::string& mixer) {
  const testing::TempDir folder;
  WriteSynthetic(folder.path(), mixer);
  const auto bytes = static_cast<double>(std::filesystem::file_size(folder.File("model.safetensors")));
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto start = Clock::now();
    const absl::StatusOr<LoadedModel> model = LoadModel(folder.path(), TheDevice(), {});
    seconds.push_back(SecondsSince(start));
    WEIR_CHECK(model.ok());
  }
  state.counters["MB/s"] = bytes * 1e-6 / Quantile(&seconds, 0.5);
}

constexpr double kLlamaAim = 3000;
constexpr double kMambaAim = 5300;  // oneDNN's rate for the projections, and a fused scan
constexpr double kMamba2Aim = 6300;

BENCHMARK_CAPTURE(BM_Decode, softmax, "softmax")->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, softmax, "softmax", kLlamaAim)
    ->Arg(512)
    ->Arg(2048)
    ->Iterations(5)
    ->UseRealTime();
BENCHMARK(BM_DecodeAtDepth)->Arg(1024)->Arg(4096)->Arg(16384)->UseRealTime();
BENCHMARK_CAPTURE(BM_Decode, linear, "linear_attention")
    ->Arg(1)
    ->Arg(4)
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, linear, "linear_attention", kLlamaAim)
    ->Arg(512)
    ->Arg(2048)
    ->Iterations(5)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Decode, mamba, "mamba")->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, mamba, "mamba", kMambaAim)->Arg(512)->Arg(2048)->Iterations(5)->UseRealTime();
BENCHMARK_CAPTURE(BM_Decode, mamba2, "mamba2")->Arg(1)->Arg(4)->Arg(16)->Arg(64)->UseRealTime();
BENCHMARK_CAPTURE(BM_Prefill, mamba2, "mamba2", kMamba2Aim)
    ->Arg(512)
    ->Arg(2048)
    ->Iterations(5)
    ->UseRealTime();
BENCHMARK_CAPTURE(BM_Load, mamba, "mamba")->Iterations(3)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_Load, mamba2, "mamba2")->Iterations(3)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir::bench

BENCHMARK_MAIN();
