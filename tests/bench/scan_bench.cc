// The selective scan of one layer of mamba-130m alone, beside what binds it: the rate of multiplications in
// registers for a prefill, the bytes of state for a batch of single tokens.
#include <memory>
#include <numeric>
#include <vector>

#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "runtime/device/cpu_device.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/scan_case.h"

namespace weir::bench {
namespace {

constexpr int kThreads = 2;
constexpr int kChannels = 1536;
constexpr int kStateDim = 16;
constexpr int kLayers = 24;  // states of as many layers lie between two visits of the same one

Device& TheDevice() {
  static const std::unique_ptr<Device> device = CreateCpuDevice(kThreads);
  return *device;
}

struct Limits {
  double bandwidth, registers;
};

const Limits& TheLimits() {
  static const Limits limits = [] {
    const Limits l{ReadBandwidth(TheDevice()), RegisterPeak(TheDevice(), DType::kF32)};
    fmt::print("limits: read {:.1f} GB/s; f32 multiply-adds in registers {:.0f} GFLOP/s; {} threads\n",
               l.bandwidth * 1e-9, l.registers * 1e-9, kThreads);
    return l;
  }();
  return limits;
}

// `seqs` runs of `tokens` tokens. Counters: us_a_token; elements/s of channels × state; of_registers: 14
// vector operations per element over half the register peak's operations (a multiply-add counts two);
// of_read: state bytes read and written a second over the read bandwidth.
void BM_SelectiveScan(benchmark::State& state) {
  const auto seqs = static_cast<int>(state.range(0));
  const auto tokens = static_cast<int>(state.range(1));
  const Limits& limits = TheLimits();
  std::vector<RunSpec> runs;
  for (int n = 0; n < seqs; ++n) runs.push_back({tokens, 0, n});
  const Ragged ragged(runs);
  const ScanCase scan(kChannels, kStateDim, seqs * tokens, 1, 1);
  const int64_t slot = int64_t{kStateDim} * kChannels;
  std::vector<float> states(static_cast<size_t>(kLayers * seqs * slot), 0.5f);
  SelectiveScanArgs args = scan.Args(ragged);
  std::vector<double> seconds;
  int layer = 0;
  for (auto _ : state) {
    args.state = TensorView(states.data() + layer * seqs * slot, DType::kF32, {seqs, kStateDim, kChannels});
    layer = (layer + 1) % kLayers;
    const auto start = Clock::now();
    SelectiveScanCpu(args, TheDevice().stream());
    seconds.push_back(SecondsSince(start));
  }
  const double call = Quantile(&seconds, 0.5);
  const double elements = static_cast<double>(slot) * seqs * tokens / call;
  state.counters["us_a_token"] = call * 1e6 / (seqs * tokens);
  state.counters["elements/s"] = elements;
  if (limits.registers > 0) state.counters["of_registers"] = 14 * elements / (limits.registers / 2);
  state.counters["of_read"] = 2.0 * 4 * static_cast<double>(slot) * seqs / call / limits.bandwidth;
}

BENCHMARK(BM_SelectiveScan)
    ->ArgNames({"seqs", "tokens"})
    ->Args({1, 1})
    ->Args({16, 1})
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({1, 64})
    ->Args({1, 512})
    ->UseRealTime();

}  // namespace
}  // namespace weir::bench

BENCHMARK_MAIN();
