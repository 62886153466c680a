// Decoders beside a long prompt, on the engine's ModelRunner: time per step of 63 decoders alone and during
// the prefill of 20,000 tokens. No network; streams are drained between the steps, outside the measured time.
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "benchmark/benchmark.h"
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
constexpr int kStepsAlone = 200;  // before the long prompt, and again after it
constexpr int kMaxTokens = 3072;  // of each decoder: more than all steps

// 63 decoders and whatever else is submitted, stepped as the engine's thread does it.
class Runner {
 public:
  explicit Runner(const std::string& zoo_model)
      : device_(CreateCpuDevice(kThreads)), loaded_(LoadZooModel(zoo_model, *device_)) {
    model_ = {loaded_.name, loaded_.decoder, loaded_.text, loaded_.eos_ids, loaded_.fingerprint, {}};
    model_.limits.slots = kDecoders + 1;
    model_.limits.kv_blocks =
        kDecoders * KvPool::BlocksFor(kDecoderPrompt + kMaxTokens) + KvPool::BlocksFor(kLongPrompt + 1);
    options_.reader_stall = absl::Hours(1);
    auto runner = ModelRunner::Create(0, model_, *device_, options_);
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
    const bool computed = runner_->Step(absl::Now(), &wake_);
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
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::shared_ptr<TokenStream>> streams_;
  WakeList wake_;
  StreamChunk chunk_;
  bool long_prompt_done_ = false;
};

// Counters: median, p99 and longest step in microseconds without and with the prefill, their ratios (aim for
// each: at most 2), prefill tokens a step and a second, and the steps that it took.
void BM_DecodersBesideLongPrefill(benchmark::State& state, const std::string& zoo_model) {
  for (auto _ : state) {
    Runner runner(zoo_model);
    for (int i = 0; i < kDecoders; ++i)
      runner.Submit(kDecoderPrompt, kMaxTokens, 100 + static_cast<unsigned>(i));
    while (runner.Stats().generated_tokens < 8 * kDecoders) runner.Step();

    std::vector<double> alone, beside;
    for (int i = 0; i < kStepsAlone; ++i) alone.push_back(runner.Step());

    const RunnerStats before = runner.Stats();
    runner.Submit(kLongPrompt, 1, 1);
    double prefill_seconds = 0;
    while (!runner.long_prompt_done()) {
      beside.push_back(runner.Step());
      prefill_seconds += beside.back();
    }
    const RunnerStats after = runner.Stats();
    const auto steps = static_cast<double>(after.steps - before.steps);
    const auto decoded = static_cast<double>(after.generated_tokens - before.generated_tokens - 1);
    // The depth grows meanwhile, so the other half of the steps alone comes after.
    for (int i = 0; i < kStepsAlone; ++i) alone.push_back(runner.Step());

    state.SetIterationTime(prefill_seconds);
    for (const auto& [name, q] : {std::pair("median", 0.5), {"p99", 0.99}, {"max", 1.0}}) {
      const double a = Quantile(&alone, q), b = Quantile(&beside, q);
      state.counters[std::string(name) + "_us_alone"] = a * 1e6;
      state.counters[std::string(name) + "_us_beside"] = b * 1e6;
      state.counters[std::string(name) + "_ratio"] = b / a;
    }
    const auto prefilled = static_cast<double>(after.prefilled_tokens - before.prefilled_tokens);
    state.counters["prefill_tokens"] = prefilled;
    state.counters["prefill_tokens_a_step"] = prefilled / steps;
    state.counters["prefill_tokens/s"] = prefilled / prefill_seconds;
    state.counters["decoded_a_step"] = decoded / steps;  // 63: no decoder waited
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
