// The linear recurrence against what the machine allows: bytes per second of the decode step beside a plain
// read-and-write pass over the same memory, whole chunks as steps and as products, and the error after ten
// million tokens. Shape: 9 heads of 64x64 (135M decoders) unless the name says otherwise.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/linear_recurrence/cost.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "tests/support/recurrence_case.h"

namespace weir {
namespace {

constexpr int kHeads = 9;

// One token for each of `slots` sequences. Arguments: slots, head_dim, threads.
void BM_Step(benchmark::State& bench) {
  const int slots = static_cast<int>(bench.range(0));
  const int dim = static_cast<int>(bench.range(1));
  const auto device = CreateCpuDevice(static_cast<int>(bench.range(2)));
  const RecurrenceShape shape{kHeads, kHeads, dim, dim, true};
  RecurrenceState state(shape, slots);
  const RecurrenceTokens tokens(shape, slots, 1);
  std::vector<RunSpec> runs;
  for (int slot = 0; slot < slots; ++slot) runs.push_back({1, 1, slot});
  const Ragged ragged(runs);
  const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
  for (auto _ : bench) LinearRecurrenceCpu(args, device->stream());
  // Inner read and written, outer read.
  const int64_t level = RecurrenceStateBytes(kHeads, dim, dim, true, 1);
  bench.SetBytesProcessed(bench.iterations() * slots * level * 3);
  bench.SetItemsProcessed(bench.iterations() * slots);
}
BENCHMARK(BM_Step)->ArgsProduct({{1, 16, 64, 256}, {64, 128}, {1, 2}})->UseRealTime();

using Vector = float __attribute__((vector_size(64), aligned(4), may_alias));

// The limit: inner += 1, outer summed up, over as many bytes and cut among the threads in the same way.
void BM_ReadModifyWriteAndRead(benchmark::State& bench) {
  const int64_t slots = bench.range(0);
  const auto device = CreateCpuDevice(static_cast<int>(bench.range(2)));
  const int64_t floats = RecurrenceStateBytes(1, bench.range(1), bench.range(1), true, 1) / 4;
  std::vector<float> inner(static_cast<size_t>(slots * kHeads * floats), 1.0f);
  std::vector<float> outer(inner.size(), 1.0f);
  for (auto _ : bench) {
    PoolOf(device->stream()).ParallelFor(slots * kHeads, [&](int64_t piece, int) {
      auto* in = reinterpret_cast<Vector*>(inner.data() + piece * floats);
      const auto* out = reinterpret_cast<const Vector*>(outer.data() + piece * floats);
      Vector sum = {};
      for (int64_t i = 0; i < floats / 16; ++i) {
        in[i] += 1.0f;
        sum += out[i];
      }
      benchmark::DoNotOptimize(sum);
      benchmark::ClobberMemory();
    });
  }
  bench.SetBytesProcessed(bench.iterations() * slots * kHeads * floats * 4 * 3);
}
BENCHMARK(BM_ReadModifyWriteAndRead)->ArgsProduct({{1, 16, 64, 256}, {64, 128}, {1, 2}})->UseRealTime();

// 512 tokens of one sequence. Arguments: head_dim, products instead of steps, query heads per state.
void BM_Prefill(benchmark::State& bench) {
  const auto device = CreateCpuDevice(1);
  const int dim = static_cast<int>(bench.range(0));
  const auto way = bench.range(1) != 0 ? WholeChunks::kProducts : WholeChunks::kSteps;
  const int queries = static_cast<int>(bench.range(2));
  const RecurrenceShape shape{kHeads * queries, kHeads, dim, dim, true};
  RecurrenceState state(shape, 1);
  const RecurrenceTokens tokens(shape, 512, 1);
  const Ragged ragged({{512, 0, 0}});
  const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
  for (auto _ : bench) LinearRecurrenceCpuWith(args, way, device->stream());
  bench.SetItemsProcessed(bench.iterations() * 512);
  bench.SetLabel(way == WholeChunks::kProducts ? "products" : "steps");
}
BENCHMARK(BM_Prefill)->ArgsProduct({{64, 128}, {0, 1}, {1, 3}})->UseRealTime();

// The shape of a 130M Mamba-2: 24 states of 128x64 that decay and share one q and k.
const RecurrenceShape kMamba2Shape = {24, 24, 128, 64, false, Decay::kPerToken, 1};

// 512 tokens of one sequence. Argument: products instead of steps.
void BM_PrefillMamba2(benchmark::State& bench) {
  const auto device = CreateCpuDevice(1);
  const auto way = bench.range(0) != 0 ? WholeChunks::kProducts : WholeChunks::kSteps;
  RecurrenceState state(kMamba2Shape, 1);
  const RecurrenceTokens tokens(kMamba2Shape, 512, 1);
  const Ragged ragged({{512, 0, 0}});
  const LinearRecurrenceArgs args = MakeArgs(kMamba2Shape, ragged, tokens, state);
  for (auto _ : bench) LinearRecurrenceCpuWith(args, way, device->stream());
  bench.SetItemsProcessed(bench.iterations() * 512);
  bench.SetLabel(way == WholeChunks::kProducts ? "products" : "steps");
}
BENCHMARK(BM_PrefillMamba2)->Arg(0)->Arg(1)->UseRealTime();

// One token for each of range(0) sequences, range(1) threads: the state is read and written.
void BM_StepMamba2(benchmark::State& bench) {
  const int slots = static_cast<int>(bench.range(0));
  const auto device = CreateCpuDevice(static_cast<int>(bench.range(1)));
  RecurrenceState state(kMamba2Shape, slots);
  const RecurrenceTokens tokens(kMamba2Shape, slots, 1);
  std::vector<RunSpec> runs;
  for (int slot = 0; slot < slots; ++slot) runs.push_back({1, 1, slot});
  const Ragged ragged(runs);
  const LinearRecurrenceArgs args = MakeArgs(kMamba2Shape, ragged, tokens, state);
  for (auto _ : bench) LinearRecurrenceCpu(args, device->stream());
  bench.SetBytesProcessed(bench.iterations() * slots * RecurrenceStateBytes(24, 128, 64, false, 1) * 2);
}
BENCHMARK(BM_StepMamba2)->ArgsProduct({{1, 16, 64}, {1, 2}})->UseRealTime();

// Relative error of S after ten million tokens of d = 4, against double precision. Argument: whether every
// token is the same one.
void BM_RangeErrorAtTenMillion(benchmark::State& bench) {
  constexpr int kPiece = 65536;
  const auto device = CreateCpuDevice(1);
  const RecurrenceShape shape{1, 1, 4, 4, true};
  double error = 0.0;
  for (auto _ : bench) {
    RecurrenceState state(shape, 1);
    const RecurrenceTokens tokens(shape, kPiece, 18);
    Random(19).FillUniform(tokens.v, 0.0, 1.0);
    for (int t = 1; bench.range(0) != 0 && t < kPiece; ++t) {
      std::copy_n(tokens.k.row<float>(0), 4, tokens.k.row<float>(t));
      std::copy_n(tokens.v.row<float>(0), 4, tokens.v.row<float>(t));
    }
    std::vector<double> s(16, 0.0);
    int64_t done = 0;
    for (; done < 10'000'000; done += kPiece) {
      const Ragged ragged({{kPiece, done, 0}});
      LinearRecurrenceCpu(MakeArgs(shape, ragged, tokens, state), device->stream());
      for (int t = 0; t < kPiece; ++t)
        for (int i = 0; i < 16; ++i)
          s[static_cast<size_t>(i)] +=
              static_cast<double>(tokens.k.row<float>(t)[i / 4]) * tokens.v.row<float>(t)[i % 4];
    }
    error = MaxRelativeError(state.S(), s);
  }
  bench.counters["relative_error"] = error;
}
BENCHMARK(BM_RangeErrorAtTenMillion)->Arg(0)->Arg(1)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
