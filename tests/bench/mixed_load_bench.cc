// Decoders beside a long prompt, on the engine's ModelRunner: time per step of 63 decoders alone and during
// the prefill of 20,000 tokens. No network; streams are drained between the steps, outside the measured time.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/model_runner.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/model_harness.h"

namespace weir::bench {
namespace {

constexpr int kThreads = 2;
constexpr int kDecoders = 63;
constexpr int kDecoderPrompt = 128;
constexpr int kLongPrompt = 20'000;
constexpr int kSteps = 150;       // of each of the four stretches that are compared
constexpr int kMaxTokens = 3072;  // of each decoder: more than all steps

// 63 decoders and whatever else is submitted, stepped as the engine's thread does it.
class Runner {
 public:
  explicit Runner(const std::string& zoo_model)
      : device_(CreateCpuDevice(kThreads)), loaded_(LoadZooModel(zoo_model, *device_)) {
    model_ = EngineModelOf(loaded_, {});
    model_.limits.slots = kDecoders + 1;
    model_.limits.kv_blocks =
        kDecoders * KvPool::BlocksFor(kDecoderPrompt + kMaxTokens) + KvPool::BlocksFor(kLongPrompt + 1);
    options_.reader_stall = absl::Hours(1);
    auto runner = ModelRunner::Create(0, model_, *device_, options_, &budget_);
    WEIR_CHECK(runner.ok());
    runner_ = *std::move(runner);
  }

  void Submit(int prompt_tokens, int64_t max_tokens, unsigned seed) {
    TurnParams params;
    params.prompt = testing::RandomTokens(prompt_tokens, loaded_.decoder->vocab_size(), seed);
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    params.sampling.seed = seed;
    streams_.push_back(std::make_shared<TokenStream>(
        0, 4096, [] {}, [] {}));
    runner_->outstanding().fetch_add(1);
    runner_->Submit(std::move(params), streams_.back(), absl::Now(), &wake_);
  }

  // Seconds of one step.
  double Step() {
    const auto start = Clock::now();
    const bool computed = *runner_->Step(absl::Now(), &wake_);
    const double seconds = SecondsSince(start);
    WEIR_CHECK(computed);
    wake_.streams.clear();
    for (size_t i = 0; i < streams_.size(); ++i) {
      for (streams_[i]->Drain(&chunk_); !chunk_.empty(); streams_[i]->Drain(&chunk_)) {
        WEIR_CHECK(!chunk_.error.has_value());
        if (!chunk_.finish) continue;
        WEIR_CHECK(i == kDecoders);  // the decoders go on to the end
        long_prompt_done_ = true;
      }
    }
    return seconds;
  }

  RunnerStats Stats() const { return runner_->Stats(); }
  bool long_prompt_done() const { return long_prompt_done_; }

 private:
  std::unique_ptr<Device> device_;
  LoadedModel loaded_;
  EngineModel model_;
  EngineOptions options_;
  MemoryBudget budget_{0};
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::shared_ptr<TokenStream>> streams_;
  WakeList wake_;
  StreamChunk chunk_;
  bool long_prompt_done_ = false;
};

// The decoders' own depth grows meanwhile, and with it their time under softmax. So the first steps beside
// the prefill are held against those just before it, and the last ones against those just after it.
void Compare(benchmark::State& state, const std::string& when, std::vector<double> alone,
             std::vector<double> beside) {
  for (const auto& [name, q] : {std::pair("median", 0.5), {"p99", 0.99}, {"max", 1.0}}) {
    const double a = Quantile(&alone, q), b = Quantile(&beside, q);
    state.counters[fmt::format("{}_{}_us_alone", when, name)] = a * 1e6;
    state.counters[fmt::format("{}_{}_us_beside", when, name)] = b * 1e6;
    state.counters[fmt::format("{}_{}_ratio", when, name)] = b / a;
  }
}

// Counters: median, p99 and longest step without and with the prefill at its beginning and at its end, and
// their ratios (aim for each: at most 2), prefill tokens a step and a second, and the steps that it took.
void BM_DecodersBesideLongPrefill(benchmark::State& state, const std::string& zoo_model) {
  for (auto _ : state) {
    Runner runner(zoo_model);
    for (int i = 0; i < kDecoders; ++i)
      runner.Submit(kDecoderPrompt, kMaxTokens, 100 + static_cast<unsigned>(i));
    // Until the last of them has its prompt behind it.
    while (runner.Stats().prefilled_tokens < kDecoders * (kDecoderPrompt - 1)) runner.Step();
    runner.Step();

    std::vector<double> before, beside, after;
    for (int i = 0; i < kSteps; ++i) before.push_back(runner.Step());
    const RunnerStats begin = runner.Stats();
    runner.Submit(kLongPrompt, 1, 1);
    while (!runner.long_prompt_done()) beside.push_back(runner.Step());
    const RunnerStats end = runner.Stats();
    for (int i = 0; i < kSteps; ++i) after.push_back(runner.Step());

    WEIR_CHECK(std::ssize(beside) >= kSteps);
    Compare(state, "first", before, {beside.begin(), beside.begin() + kSteps});
    Compare(state, "last", after, {beside.end() - kSteps, beside.end()});
    const double seconds = std::accumulate(beside.begin(), beside.end(), 0.0);
    const auto steps = static_cast<double>(end.steps - begin.steps);
    const auto prefilled = static_cast<double>(end.prefilled_tokens - begin.prefilled_tokens);
    state.SetIterationTime(seconds);
    state.counters["prefill_tokens"] = prefilled;
    state.counters["prefill_tokens_a_step"] = prefilled / steps;
    state.counters["prefill_tokens/s"] = prefilled / seconds;
    // 63: no decoder waited.
    state.counters["decoded_a_step"] =
        static_cast<double>(end.generated_tokens - begin.generated_tokens - 1) / steps;
    state.counters["steps"] = steps;
  }
}
BENCHMARK_CAPTURE(BM_DecodersBesideLongPrefill, linear, "tales-linear")
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_DecodersBesideLongPrefill, softmax, "tales-softmax")
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir::bench

BENCHMARK_MAIN();
