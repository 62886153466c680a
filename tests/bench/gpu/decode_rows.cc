// One token of each session: what has to move is the sessions' states, or their keys and values.
#include <cmath>

#include "fmt/format.h"
#include "runtime/ops/attention/attention_scratch.h"
#include "runtime/ops/selective_scan/selective_scan.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "tests/bench/gpu/mixer_work.h"

namespace weir::bench {
namespace {

constexpr double kAim = 0.85;
// Where a state is not read for the first time and does not begin a new fold.
constexpr int64_t kPosition = 100;

void RecurrenceStep(GpuBench& bench, const RecurrenceHeads& shape, int sessions) {
  bench.Measure(
      {.name = fmt::format("recurrence step, {}", shape.name),
       .size = fmt::format("{} sessions, {} states {} x {}", sessions, shape.num_kv_heads, shape.state_dim,
                           shape.head_dim),
       .counted = shape.two_levels ? "inner S, z read and written, outer read; q k v o"
                                   : "S read and written; q k v o",
       .bytes = sessions * (RecurrenceStateBytes(shape) + RecurrenceTokenBytes(shape)),
       .aim = kAim},
      [&](DeviceArrays& arrays) { return RecurrenceWork(bench, arrays, shape, sessions, 1, kPosition); });
}

void FlashDecode(GpuBench& bench, const AttentionHeads& shape, int sessions, int depth) {
  const double kv = 2.0 * shape.num_kv_heads * shape.head_dim * 2;
  bench.Measure(
      {.name = "flash decode",
       .size = fmt::format("{} sessions at {}, {}", sessions, depth, AttentionName(shape)),
       .counted = "keys and values once; q o",
       .bytes = sessions * (depth * kv + 2.0 * 4 * shape.num_heads * shape.head_dim),
       .aim = kAim},
      [&](DeviceArrays& arrays) { return AttentionWork(bench, arrays, shape, sessions, 1, depth - 1); });
}

}  // namespace

double RecurrenceTokenBytes(const RecurrenceHeads& s) {
  const int q = s.k_heads() * s.queries() * s.state_dim, k = s.k_heads() * s.state_dim;
  return 4.0 *
         (q + k + s.num_kv_heads * s.head_dim + s.num_heads * s.head_dim + (s.decays ? s.num_kv_heads : 0));
}

double RecurrenceStateBytes(const RecurrenceHeads& s) {
  const double level = 4.0 * s.num_kv_heads * s.state_dim * (s.head_dim + (s.two_levels ? 1 : 0));
  return level * (s.two_levels ? 3 : 2);
}

GpuBench::Work RecurrenceWork(GpuBench& bench, DeviceArrays& arrays, const RecurrenceHeads& s, int sequences,
                              int tokens, int64_t position) {
  const int64_t rows = int64_t{sequences} * tokens;
  LinearRecurrenceArgs args;
  args.batch = arrays.Batch(sequences, tokens, position);
  // What feature maps give is positive.
  args.q = arrays.Values(DType::kF32, {rows, s.k_heads() * s.queries() * s.state_dim}, 0.1f);
  args.k = arrays.Values(DType::kF32, {rows, s.k_heads() * s.state_dim}, 0.1f);
  args.v = arrays.F32(rows, s.num_kv_heads * s.head_dim);
  // Performer's is nearly always 0; Mamba-2's never.
  if (s.decays)
    args.log_decay = s.two_levels ? arrays.Zeros(DType::kF32, {rows, s.num_kv_heads})
                                  : arrays.Values(DType::kF32, {rows, s.num_kv_heads}, -0.5f, -0.001f);
  args.s_inner = arrays.Values(DType::kF32, {sequences, s.num_kv_heads, s.state_dim, s.head_dim});
  if (s.two_levels) {
    args.s_outer = arrays.Values(DType::kF32, {sequences, s.num_kv_heads, s.state_dim, s.head_dim});
    args.z_inner = arrays.Values(DType::kF32, {sequences, s.num_kv_heads, s.state_dim}, 1.0f, 2.0f);
    args.z_outer = arrays.Values(DType::kF32, {sequences, s.num_kv_heads, s.state_dim}, 1.0f, 2.0f);
  }
  args.o = arrays.Zeros(DType::kF32, {rows, s.num_heads * s.head_dim});
  args.num_heads = s.num_heads;
  args.num_kv_heads = s.num_kv_heads;
  args.num_k_heads = s.num_k_heads;
  return [&bench, args] { Launch(kLinearRecurrence, args, bench.device().stream()); };
}

std::string AttentionName(const AttentionHeads& s) {
  return fmt::format("{}/{} heads of {}", s.num_heads, s.num_kv_heads, s.head_dim);
}

GpuBench::Work AttentionWork(GpuBench& bench, DeviceArrays& arrays, const AttentionHeads& s, int sequences,
                             int tokens, int64_t position) {
  const int64_t rows = int64_t{sequences} * tokens;
  const int64_t blocks = DeviceArrays::BlocksOf(sequences, tokens, position);
  AttentionArgs args;
  args.batch = arrays.PagedBatch(sequences, tokens, position);
  args.q = arrays.F32(rows, s.num_heads * s.head_dim);
  args.kv.keys = arrays.Values(DType::kBF16, {blocks, s.num_kv_heads, s.head_dim, kKvBlockTokens});
  args.kv.values = arrays.Values(DType::kBF16, {blocks, s.num_kv_heads, kKvBlockTokens, s.head_dim});
  args.o = arrays.Zeros(DType::kF32, {rows, s.num_heads * s.head_dim});
  // As ModelStep gives it, where 256 MiB are enough for all sequences.
  args.scratch = arrays.Zeros(
      DType::kF32, {AttentionScratchElements(tokens, AttentionScratchPositions(position + tokens, sequences),
                                             s.num_heads, s.head_dim, 1)});
  args.num_heads = s.num_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  return [&bench, args] { Launch(kAttention, args, bench.device().stream()); };
}

GpuBench::Work ScanWork(GpuBench& bench, DeviceArrays& arrays, int sequences, int tokens) {
  const int64_t rows = int64_t{sequences} * tokens;
  SelectiveScanArgs args;
  args.batch = arrays.Batch(sequences, tokens, kPosition);
  args.u = arrays.F32(rows, kScanChannels);
  args.dt = arrays.Values(DType::kF32, {rows, kScanChannels}, -3.0f, 0.0f);
  args.a = arrays.Values(DType::kF32, {kScanStateDim, kScanChannels}, -8.0f, -0.5f);
  // As in the model, where x's projection holds both beside each other.
  const TensorView bc = arrays.F32(rows, 2 * kScanStateDim);
  if (!arrays.status().ok()) return {};
  args.b = bc.Columns(0, kScanStateDim);
  args.c = bc.Columns(kScanStateDim, kScanStateDim);
  args.d = arrays.Values(DType::kF32, {kScanChannels});
  args.z = arrays.F32(rows, kScanChannels);
  args.state = arrays.Values(DType::kF32, {sequences, kScanStateDim, kScanChannels});
  args.y = arrays.Zeros(DType::kF32, {rows, kScanChannels});
  return [&bench, args] { Launch(kSelectiveScan, args, bench.device().stream()); };
}

GpuBench::Work ConvWork(GpuBench& bench, DeviceArrays& arrays, int sequences, int tokens) {
  const int64_t rows = int64_t{sequences} * tokens;
  ShortConvArgs args;
  args.batch = arrays.Batch(sequences, tokens, kPosition);
  args.x = arrays.F32(rows, kConvChannels);
  args.weight = arrays.F32(kConvWidth, kConvChannels);
  args.bias = arrays.Values(DType::kF32, {kConvChannels});
  args.window = arrays.Values(DType::kF32, {sequences, kConvWidth - 1, kConvChannels});
  args.y = arrays.Zeros(DType::kF32, {rows, kConvChannels});
  return [&bench, args] { Launch(kShortConv, args, bench.device().stream()); };
}

void DecodeRows(GpuBench& bench) {
  bench.Section("Decode kernels, one layer", 0.12);
  RecurrenceStep(bench, kLinearShape, bench.Pick(4096, 3));
  RecurrenceStep(bench, kPerformerShape, bench.Pick(4096, 2));
  RecurrenceStep(bench, kMamba2Shape, bench.Pick(512, 1));
  if (!bench.tiny()) RecurrenceStep(bench, kMamba2Shape, 4096);
  const int sessions = bench.Pick(4096, 2);
  bench.Measure({.name = "selective scan step",
                 .size = fmt::format("{} sessions, {} channels x {}", sessions, kScanChannels, kScanStateDim),
                 .counted = "h read and written; u dt z y B C",
                 .bytes = sessions * 4.0 *
                          (2.0 * kScanChannels * kScanStateDim + 4 * kScanChannels + 2 * kScanStateDim),
                 .aim = kAim},
                [&](DeviceArrays& arrays) { return ScanWork(bench, arrays, sessions, 1); });
  FlashDecode(bench, kLlama135mShape, bench.Pick(512, 2), bench.Pick(1024, 300));
  if (!bench.tiny()) FlashDecode(bench, kLlama135mShape, 4096, 1024);
  FlashDecode(bench, kWideShape, bench.Pick(512, 1), bench.Pick(1024, 70));
  const int windows = bench.Pick(8192, 3);
  bench.Measure({.name = "short convolution step",
                 .size = fmt::format("{} sessions, {} channels", windows, kConvChannels),
                 .counted = "window read and written; x y",
                 .bytes = 4.0 * windows * kConvChannels * (2.0 * (kConvWidth - 1) + 2)},
                [&](DeviceArrays& arrays) { return ConvWork(bench, arrays, windows, 1); });
}

}  // namespace weir::bench
