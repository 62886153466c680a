// Many tokens a sequence: what has to be done is matrix products, beside which the tokens move once.
#include <vector>

#include "fmt/format.h"
#include "tests/bench/gpu/mixer_work.h"

namespace weir::bench {
namespace {

// Operations of the recurrence over whole chunks, per token: with C = 64 tokens a chunk, a token's query
// meets (C + 1) / 2 keys and values of its chunk and the state before it, and its key and value go into the
// state. Query and key meet once for all states that share them.
double ChunkOperations(const RecurrenceHeads& s) {
  const double meets = kChunkTokens + 1;  // twice the mean number
  const double n = s.state_dim, p = s.head_dim;
  const double scores = meets * n * s.k_heads() * s.queries();
  const double outputs = (meets * p + 2 * n * p) * s.num_heads;
  const double update = 2 * n * p * s.num_kv_heads;
  return scores + outputs + update;
}

void Recurrence(GpuBench& bench, const RecurrenceHeads& shape, int sequences, int tokens, double aim) {
  const double rows = static_cast<double>(sequences) * tokens;
  bench.Measure(
      {.name = fmt::format("chunked recurrence, {}", shape.name),
       .size = fmt::format("{} x {} tokens", sequences, tokens),
       .counted = "products within chunks of 64, with the state and into it; tokens once",
       .bytes = rows * RecurrenceTokenBytes(shape) + sequences * RecurrenceStateBytes(shape),
       .operations = rows * ChunkOperations(shape),
       .aim = aim},
      [&](DeviceArrays& arrays) { return RecurrenceWork(bench, arrays, shape, sequences, tokens, 0); });
}

void FlashPrefill(GpuBench& bench, const AttentionHeads& shape, int tokens) {
  const double width = shape.num_heads * shape.head_dim;
  bench.Measure({.name = "flash prefill",
                 .size = fmt::format("{} tokens, {}", tokens, AttentionName(shape)),
                 .counted = "2 products over n (n + 1) / 2 pairs; q o k v once",
                 .bytes = tokens * (8 * width + 4.0 * shape.num_kv_heads * shape.head_dim),
                 .operations = 4.0 * width * tokens * (tokens + 1.0) / 2},
                [&](DeviceArrays& arrays) { return AttentionWork(bench, arrays, shape, 1, tokens, 0); });
}

void Scan(GpuBench& bench, int sequences, int tokens) {
  const double rows = static_cast<double>(sequences) * tokens;
  bench.Measure({.name = "selective scan",
                 .size = fmt::format("{} x {} tokens", sequences, tokens),
                 .counted = "u dt z y B C once; exponentials are not counted",
                 .bytes = rows * 4.0 * (4 * kScanChannels + 2 * kScanStateDim)},
                [&](DeviceArrays& arrays) { return ScanWork(bench, arrays, sequences, tokens); });
}

}  // namespace

// Flash attention and the linear recurrence at the same lengths, at the heads of the same 135M models; then
// batches that fill a GPU.
void PrefillRows(GpuBench& bench) {
  bench.Section("Prefill kernels, one layer", 0.15);
  constexpr double kSsdAim = 0.5;
  for (const int tokens : bench.tiny() ? std::vector<int>{130} : std::vector<int>{2048, 16384, 131072}) {
    Recurrence(bench, kLinearShape, 1, tokens, 0);
    FlashPrefill(bench, kLlama135mShape, tokens);
  }
  FlashPrefill(bench, kWideShape, bench.Pick(2048, 33));
  if (!bench.tiny()) FlashPrefill(bench, kWideShape, 16384);
  const int sequences = bench.Pick(16, 2), tokens = bench.Pick(4096, 70);
  Recurrence(bench, kMamba2Shape, sequences, tokens, kSsdAim);
  if (!bench.tiny()) Recurrence(bench, kMamba2Shape, 1, 65536, 0);
  Recurrence(bench, kLinearShape, bench.Pick(64, 2), bench.Pick(4096, 65), 0);
  Recurrence(bench, kPerformerShape, bench.Pick(64, 1), bench.Pick(4096, 65), 0);
  Scan(bench, sequences, bench.Pick(4096, 4));
  if (!bench.tiny()) Scan(bench, 1, 65536);
  const double conv = static_cast<double>(sequences) * tokens * kConvChannels;
  bench.Measure({.name = "short convolution",
                 .size = fmt::format("{} x {} tokens, {} channels", sequences, tokens, kConvChannels),
                 .counted = "x y",
                 .bytes = 8.0 * conv},
                [&](DeviceArrays& arrays) { return ConvWork(bench, arrays, sequences, tokens); });
}

}  // namespace weir::bench
