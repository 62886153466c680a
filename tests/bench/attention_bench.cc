// Flash attention of one layer: decode as a share of the memory bandwidth measured in the same run, and
// prefill in tokens and multiply-adds per second. Heads as in the default models: 9 over 3 KV heads of 64.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/attention/attention.h"

namespace weir {
namespace {

constexpr int kNumHeads = 9;
constexpr int kNumKvHeads = 3;
constexpr int kHeadDim = 64;
// Larger than any last-level cache here, so that every decode reads its sequence from memory.
constexpr int64_t kColdBytes = int64_t{384} << 20;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes per second that all threads together read from memory in reads of `chunk` bytes: the fastest chunk,
// as the fastest step is compared with it, so that a busy machine disturbs neither.
double ReadBandwidth(Device& device, const DeviceBuffer& buffer, int64_t chunk) {
  constexpr int64_t kSlice = 1 << 16;
  WorkerPool& pool = PoolOf(device.stream());
  chunk = std::min(buffer.bytes(), (chunk + kSlice - 1) / kSlice * kSlice);
  double best = 0.0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (int64_t begin = 0; begin + chunk <= buffer.bytes(); begin += chunk) {
      const auto start = Clock::now();
      pool.ParallelFor(chunk / kSlice, [&](int64_t slice, int) {
        const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + begin + slice * kSlice);
        uint64_t sums[8] = {};
        for (int64_t i = 0; i < kSlice / 8; i += 8)
          for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
        for (uint64_t& sum : sums) benchmark::DoNotOptimize(sum);
      });
      best = std::max(best, static_cast<double>(chunk) / SecondsSince(start));
    }
  }
  return best;
}

// A pool of `num_seqs` sequences of `length` positions with shuffled blocks, and one batch over it.
class Problem {
 public:
  Problem(DType dtype, int num_seqs, int64_t length, int tokens, int threads)
      : device_(CreateCpuDevice(threads)), dtype_(dtype), blocks_per_seq_((length + 63) / 64) {
    const int64_t blocks = blocks_per_seq_ * num_seqs;
    const int64_t bytes =
        blocks * kNumKvHeads * kHeadDim * kKvBlockTokens * static_cast<int64_t>(DTypeBytes(dtype));
    keys_ = *device_->Allocate(bytes);
    values_ = *device_->Allocate(bytes);
    FillWithNumbers(keys_);
    FillWithNumbers(values_);
    tables_.resize(static_cast<size_t>(blocks));
    for (size_t i = 0; i < tables_.size(); ++i) tables_[i] = static_cast<int32_t>(i);
    std::shuffle(tables_.begin(), tables_.end(), std::mt19937(1));
    q_.resize(static_cast<size_t>(tokens * kNumHeads * kHeadDim));
    o_.resize(q_.size());
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (float& value : q_) value = normal(random);
    scratch_.resize(static_cast<size_t>(AttentionScratchElements(tokens, length, kNumHeads, kHeadDim,
                                                                 PoolOf(device_->stream()).num_threads())));
    cu_[1] = tokens;
    position_ = length - tokens;
    args_.batch.num_tokens = args_.batch.max_seq_tokens = tokens;
    args_.batch.num_seqs = 1;
    args_.batch.cu_seqlens = TensorView(cu_, DType::kI32, {2});
    args_.batch.positions = TensorView(&position_, DType::kI64, {1});
    args_.q = TensorView(q_.data(), DType::kF32, {tokens, kNumHeads * kHeadDim});
    args_.o = TensorView(o_.data(), DType::kF32, {tokens, kNumHeads * kHeadDim});
    args_.kv.keys = TensorView(keys_.data(), dtype, {blocks, kNumKvHeads, kHeadDim, kKvBlockTokens});
    args_.kv.values = TensorView(values_.data(), dtype, {blocks, kNumKvHeads, kKvBlockTokens, kHeadDim});
    args_.scratch = TensorView(scratch_.data(), DType::kF32, {static_cast<int64_t>(scratch_.size())});
    args_.num_heads = kNumHeads;
    args_.scale = 0.125f;
  }

  void Run(int seq) {
    args_.batch.block_tables =
        TensorView(tables_.data() + seq * blocks_per_seq_, DType::kI32, {1, blocks_per_seq_});
    AttentionCpu(args_, device_->stream());
  }
  Device& device() { return *device_; }
  const DeviceBuffer& values() const { return values_; }

 private:
  void FillWithNumbers(DeviceBuffer& buffer) {
    std::mt19937 random(3);
    const auto elements = buffer.bytes() / static_cast<int64_t>(DTypeBytes(dtype_));
    for (int64_t i = 0; i < elements; ++i) {
      const float value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
      if (dtype_ == DType::kF32) reinterpret_cast<float*>(buffer.data())[i] = value;
      if (dtype_ == DType::kF16) reinterpret_cast<F16*>(buffer.data())[i] = F16::FromFloat(value);
      if (dtype_ == DType::kBF16) reinterpret_cast<BF16*>(buffer.data())[i] = BF16::FromFloat(value);
    }
  }

  std::unique_ptr<Device> device_;
  const DType dtype_;
  const int64_t blocks_per_seq_;
  DeviceBuffer keys_, values_;
  std::vector<int32_t> tables_;
  std::vector<float> q_, o_, scratch_;
  int32_t cu_[2] = {0, 0};
  int64_t position_ = 0;
  AttentionArgs args_;
};

// Threads: 0 means all; one thread gives a steadier figure on a busy machine.
//
// One token at depth range(0), another sequence each time. Counters: KV bytes per second on average and in
// the fastest step, and the latter's share of the read bandwidth.
void BM_Decode(benchmark::State& state, DType dtype) {
  const int64_t depth = state.range(0);
  const int64_t bytes = 2 * depth * kNumKvHeads * kHeadDim * static_cast<int64_t>(DTypeBytes(dtype));
  const int num_seqs = static_cast<int>(std::max<int64_t>(1, kColdBytes / bytes));
  Problem problem(dtype, num_seqs, depth, 1, static_cast<int>(state.range(1)));
  const double bandwidth = ReadBandwidth(problem.device(), problem.values(), bytes);
  int seq = 0;
  double best = 1e9;
  const auto start = Clock::now();
  for (auto _ : state) {
    const auto step = Clock::now();
    problem.Run(seq);
    best = std::min(best, SecondsSince(step));
    seq = (seq + 1) % num_seqs;
  }
  state.counters["mean_GB/s"] = static_cast<double>(bytes * state.iterations()) / SecondsSince(start) * 1e-9;
  state.counters["best_GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["read_GB/s"] = bandwidth * 1e-9;
  state.counters["share"] = static_cast<double>(bytes) / best / bandwidth;
}

void DecodeArgs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"depth", "threads"})->ArgsProduct({{1024, 4096, 16384}, {0, 1}})->UseRealTime();
}
BENCHMARK_CAPTURE(BM_Decode, f16, DType::kF16)->Apply(DecodeArgs);
BENCHMARK_CAPTURE(BM_Decode, bf16, DType::kBF16)->Apply(DecodeArgs);
BENCHMARK_CAPTURE(BM_Decode, f32, DType::kF32)->Apply(DecodeArgs);

// A whole prompt of range(0) tokens. Counters: tokens per second on average and in the fastest step, and 10^9
// multiply-adds per second of the causal half of both products in the latter.
void BM_Prefill(benchmark::State& state, DType dtype) {
  const int64_t n = state.range(0);
  Problem problem(dtype, 1, n, static_cast<int>(n), static_cast<int>(state.range(1)));
  double best = 1e9;
  const auto start = Clock::now();
  for (auto _ : state) {
    const auto step = Clock::now();
    problem.Run(0);
    best = std::min(best, SecondsSince(step));
  }
  state.counters["tokens/s"] = static_cast<double>(n * state.iterations()) / SecondsSince(start);
  state.counters["best_tokens/s"] = static_cast<double>(n) / best;
  state.counters["GMAC/s"] =
      static_cast<double>(n) / best * static_cast<double>(n + 1) * kHeadDim * kNumHeads * 1e-9;
}

void PrefillArgs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "threads"})->ArgsProduct({{512, 2048, 8192}, {0, 1}})->UseRealTime();
}
BENCHMARK_CAPTURE(BM_Prefill, f16, DType::kF16)->Apply(PrefillArgs);
BENCHMARK_CAPTURE(BM_Prefill, bf16, DType::kBF16)->Apply(PrefillArgs);
BENCHMARK_CAPTURE(BM_Prefill, f32, DType::kF32)->Apply(PrefillArgs);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
