// int8 weights beside bf16 ones: the same random model loaded as both, one step of each in turn, so that what
// the machine does meanwhile meets both. A table with a line for each shape and batch.
//
//   weir_int8_bench [seconds per line] [only lines whose "mixer batch" contains this]
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/isa.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/model_harness.h"

namespace weir::bench {
namespace {

using testing::ModelHarness;

constexpr int kThreads = 2;
constexpr int64_t kDepth = 128;
constexpr int kRoom = 64;  // steps before the sequences go back to their depth

// A model with `batch` sequences at kDepth.
class Decoding {
 public:
  Decoding(const LoadedModel& model, int batch, Device& device)
      : harness_(model.decoder, device, Options(batch)),
        tokens_(testing::RandomTokens(1 << 15, model.decoder->vocab_size(), 7)) {
    for (int i = 0; i < batch; ++i) {
      sequences_.push_back(harness_.NewSequence(kDepth + kRoom));
      sequences_.back().position = kDepth;  // what the state holds does not change the time
    }
    slices_.resize(sequences_.size());
  }

  // Seconds of one step.
  double Step(int64_t step) {
    for (size_t i = 0; i < slices_.size(); ++i) {
      sequences_[i].position = kDepth + step % kRoom;
      slices_[i] = {&sequences_[i], std::span(tokens_).subspan((step * 31 + i) % 32768, 1), 1};
    }
    const auto start = Clock::now();
    harness_.StepInPlace(slices_);
    return SecondsSince(start);
  }

 private:
  static testing::HarnessOptions Options(int batch) {
    testing::HarnessOptions options;
    options.slots = batch;
    options.kv_blocks = batch * KvPool::BlocksFor(kDepth + kRoom);
    options.max_tokens = batch;
    options.max_logits = batch;
    return options;
  }

  ModelHarness harness_;
  std::vector<int32_t> tokens_;
  std::vector<ModelHarness::Sequence> sequences_;
  std::vector<ModelHarness::Slice> slices_;
};

void Compare(const std::string& mixer, const std::array<LoadedModel, 2>& models, int batch, double budget,
             Device& device) {
  Decoding bf16(models[0], batch, device), int8(models[1], batch, device);
  std::vector<double> bf16_seconds, int8_seconds, ratios;
  const auto start = Clock::now();
  for (int64_t step = 0; step < 20 || SecondsSince(start) < budget; ++step) {
    const double a = bf16.Step(step), b = int8.Step(step);
    if (step < 5) continue;  // the first ones find cold caches
    bf16_seconds.push_back(a);
    int8_seconds.push_back(b);
    ratios.push_back(a / b);
  }
  const double bandwidth = ReadBandwidth(device);
  const auto of_read = [&](const LoadedModel& model, double seconds) {
    return static_cast<double>(model.weight_bytes) / seconds / bandwidth;
  };
  const double bf16_step = Quantile(&bf16_seconds, 0.5), int8_step = Quantile(&int8_seconds, 0.5);
  fmt::print("{:16} {:5} {:9.3f} {:9.3f} {:8.2f} {:8.2f} {:8.2f}\n", mixer, batch, bf16_step * 1e3,
             int8_step * 1e3, Quantile(&ratios, 0.5), of_read(models[0], bf16_step),
             of_read(models[1], int8_step));
  std::fflush(stdout);
}

}  // namespace

int Main(double budget, const std::string& filter) {
  const std::unique_ptr<Device> device = CreateCpuDevice(kThreads);
  fmt::print("{} threads, {}; of_read: weight bytes a second over the read bandwidth\n", kThreads,
             MatmulIsaName(CurrentMatmulIsa()));
  fmt::print("mixer            batch   bf16_ms   int8_ms  speedup  of_read  of_read(int8)\n");
  for (const std::string mixer : {"mamba", "mamba2", "linear_attention", "softmax"}) {
    std::vector<int> batches;
    for (const int batch : {1, 4, 16, 64})
      if (fmt::format("{} {} ", mixer, batch).find(filter) != std::string::npos) batches.push_back(batch);
    if (batches.empty()) continue;
    const std::array<LoadedModel, 2> models = {Synthesize(mixer, *device),
                                               Synthesize(mixer, *device, DType::kI8)};
    for (const int batch : batches) Compare(mixer, models, batch, budget, *device);
  }
  return 0;
}

}  // namespace weir::bench

int main(int argc, char** argv) {
  return weir::bench::Main(argc > 1 ? std::atof(argv[1]) : 5, argc > 2 ? argv[2] : "");
}
