// Operations on each row by itself: what has to move is what they read and write.
#include <cstring>
#include <vector>

#include "fmt/format.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/discretize/discretize.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/rope/rope.h"
#include "runtime/ops/sample/sample.h"
#include "runtime/ops/skip/skip.h"
#include "runtime/ops/swiglu/swiglu.h"
#include "tests/bench/gpu/mixer_work.h"

namespace weir::bench {
namespace {

constexpr int kHeadDim = 64;

// Launches the kernel again and again on the same arrays.
template <class Args>
GpuBench::Work Repeat(GpuBench& bench, const Kernel<Args>& kernel, const Args& args) {
  return [&bench, &kernel, args] { Launch(kernel, args, bench.device().stream()); };
}

void Norms(GpuBench& bench) {
  const int64_t rows = bench.Pick<int64_t>(1 << 17, 5), columns = 768;
  bench.Measure({.name = "rms norm",
                 .size = fmt::format("{} x {}", rows, columns),
                 .counted = "x y",
                 .bytes = 8.0 * static_cast<double>(rows * columns)},
                [&](DeviceArrays& arrays) {
                  const TensorView x = arrays.F32(rows, columns);
                  const TensorView weight = arrays.Values(DType::kF32, {columns});
                  return Repeat(bench, kRmsNorm,
                                {.x = x, .weight = weight, .gate = {}, .y = arrays.F32(rows, columns)});
                });
  const int64_t inner = 2 * columns;
  bench.Measure({.name = "gated rms norm",
                 .size = fmt::format("{} x {}", rows / 2, inner),
                 .counted = "x gate y",
                 .bytes = 12.0 * static_cast<double>(rows / 2 * inner)},
                [&](DeviceArrays& arrays) {
                  const TensorView x = arrays.F32(rows / 2, inner);
                  const TensorView gate = arrays.F32(rows / 2, inner);
                  const TensorView weight = arrays.Values(DType::kF32, {inner});
                  return Repeat(bench, kRmsNorm,
                                {.x = x, .weight = weight, .gate = gate, .y = x, .gate_first = true});
                });
}

void RotateAndActivate(GpuBench& bench) {
  const int64_t rows = bench.Pick<int64_t>(1 << 17, 7);
  const int heads = 9;
  bench.Measure({.name = "rope",
                 .size = fmt::format("{} x {} heads of {}", rows, heads, kHeadDim),
                 .counted = "x in place",
                 .bytes = 8.0 * static_cast<double>(rows * heads * kHeadDim)},
                [&](DeviceArrays& arrays) {
                  RopeArgs args;
                  args.batch = arrays.Batch(static_cast<int>(rows), 1, 1000);
                  args.x = arrays.F32(rows, heads * kHeadDim);
                  args.inv_freq = arrays.Values(DType::kF32, {kHeadDim / 2}, 0.0f, 1.0f);
                  args.num_heads = heads;
                  return Repeat(bench, kRope, args);
                });
  const int64_t d_ff = bench.Pick<int64_t>(1536, 36);
  bench.Measure({.name = "swiglu",
                 .size = fmt::format("{} x {}", rows / 2, d_ff),
                 .counted = "gate up y",
                 .bytes = 12.0 * static_cast<double>(rows / 2 * d_ff)},
                [&](DeviceArrays& arrays) -> GpuBench::Work {
                  const TensorView both = arrays.F32(rows / 2, 2 * d_ff);
                  if (!arrays.status().ok()) return {};
                  const TensorView gate = both.Columns(0, d_ff);
                  return Repeat(bench, kSwiGlu, {.gate = gate, .up = both.Columns(d_ff, d_ff), .y = gate});
                });
  bench.Measure({.name = "elu plus one",
                 .size = fmt::format("{} x {}", rows, 768),
                 .counted = "x in place",
                 .bytes = 8.0 * static_cast<double>(rows * 768)},
                [&](DeviceArrays& arrays) {
                  const TensorView x = arrays.F32(rows, 768);
                  return Repeat(bench, kEluPlusOne, {.x = x, .y = x});
                });
}

// Keys of one token a session, as in decoding.
void Favor(GpuBench& bench) {
  const int64_t rows = bench.Pick<int64_t>(1 << 16, 6);
  const int heads = 9, features = 64;
  bench.Measure({.name = "performer's features",
                 .size = fmt::format("{} x {} heads of {}, {} features", rows, heads, kHeadDim, features),
                 .counted = "x y; its f32 products are not counted",
                 .bytes = 4.0 * static_cast<double>(rows * heads * (kHeadDim + features))},
                [&](DeviceArrays& arrays) {
                  FavorArgs args;
                  args.batch = arrays.Batch(static_cast<int>(rows), 1, 1000);
                  args.x = arrays.F32(rows, heads * kHeadDim);
                  args.features = arrays.F32(kHeadDim, features);
                  args.num_heads = heads;
                  args.y = arrays.Zeros(DType::kF32, {rows, heads * features});
                  args.maximum = arrays.Zeros(DType::kF32, {rows, heads});
                  args.log_decay = arrays.Zeros(DType::kF32, {rows, heads});
                  return Repeat(bench, kFavor, args);
                });
}

void Mamba2Rows(GpuBench& bench) {
  const int64_t rows = bench.Pick<int64_t>(1 << 16, 5);
  const int heads = 24;
  const int64_t columns = heads * kHeadDim;
  bench.Measure({.name = "discretize",
                 .size = fmt::format("{} x {} heads of {}", rows, heads, kHeadDim),
                 .counted = "x v, dt and decay of each head",
                 .bytes = 8.0 * static_cast<double>(rows * (columns + heads))},
                [&](DeviceArrays& arrays) {
                  DiscretizeArgs args;
                  args.dt = arrays.F32(rows, heads);
                  args.bias = arrays.Values(DType::kF32, {heads});
                  args.a = arrays.Values(DType::kF32, {heads}, -4.0f, -0.5f);
                  args.x = arrays.F32(rows, columns);
                  args.log_decay = arrays.Zeros(DType::kF32, {rows, heads});
                  args.v = arrays.Zeros(DType::kF32, {rows, columns});
                  return Repeat(bench, kDiscretize, args);
                });
  bench.Measure({.name = "skip",
                 .size = fmt::format("{} x {} heads of {}", rows, heads, kHeadDim),
                 .counted = "x, y read and written",
                 .bytes = 12.0 * static_cast<double>(rows * columns)},
                [&](DeviceArrays& arrays) {
                  const TensorView x = arrays.F32(rows, columns);
                  const TensorView d = arrays.Values(DType::kF32, {heads}, -1e-3f, 1e-3f);
                  return Repeat(bench, kSkip, {.x = x, .d = d, .y = arrays.F32(rows, columns)});
                });
}

void Lookups(GpuBench& bench) {
  const int64_t vocab = bench.Pick<int64_t>(50280, 97), columns = 768;
  const int64_t rows = bench.Pick<int64_t>(1 << 17, 5);
  bench.Measure({.name = "embedding",
                 .size = fmt::format("{} of {} rows of {}", rows, vocab, columns),
                 .counted = "a bf16 row in, an f32 row out; the cache helps",
                 .bytes = 6.0 * static_cast<double>(rows * columns)},
                [&](DeviceArrays& arrays) {
                  std::vector<int32_t> ids(static_cast<size_t>(rows));
                  for (size_t i = 0; i < ids.size(); ++i)
                    ids[i] = static_cast<int32_t>(i * 40503 % static_cast<size_t>(vocab));
                  GatherRowsArgs args;
                  args.table = arrays.Values(DType::kBF16, {vocab, columns});
                  args.index = arrays.Of(ids);
                  args.y = arrays.Zeros(DType::kF32, {rows, columns});
                  return Repeat(bench, kGatherRows, args);
                });
  const int sequences = bench.Pick(32, 2), tokens = bench.Pick(4096, 70);
  const AttentionHeads shape = kLlama135mShape;
  const int64_t kv = int64_t{shape.num_kv_heads} * shape.head_dim;
  bench.Measure({.name = "kv write",
                 .size = fmt::format("{} sequences of {} tokens", sequences, tokens),
                 .counted = "k v in f32, both out in bf16",
                 .bytes = 2.0 * 6 * static_cast<double>(sequences * tokens * kv)},
                [&](DeviceArrays& arrays) {
                  const int64_t num_tokens = int64_t{sequences} * tokens;
                  const int64_t blocks = DeviceArrays::BlocksOf(sequences, tokens, 0);
                  KvWriteArgs args;
                  args.batch = arrays.PagedBatch(sequences, tokens, 0);
                  args.k = arrays.F32(num_tokens, kv);
                  args.v = arrays.F32(num_tokens, kv);
                  args.kv.keys = arrays.Zeros(DType::kBF16,
                                              {blocks, shape.num_kv_heads, shape.head_dim, kKvBlockTokens});
                  args.kv.values = arrays.Zeros(DType::kBF16,
                                                {blocks, shape.num_kv_heads, kKvBlockTokens, shape.head_dim});
                  return Repeat(bench, kKvWrite, args);
                });
}

void Sampling(GpuBench& bench, const std::string& name, const RowParams& params) {
  const int rows = bench.Pick(4096, 3);
  const int vocab = bench.Pick(50280, 1200);
  bench.Measure({.name = name,
                 .size = fmt::format("{} rows of {}", rows, vocab),
                 .counted = "logits once",
                 .bytes = 4.0 * rows * vocab},
                [&](DeviceArrays& arrays) -> GpuBench::Work {
                  constexpr int64_t kParamWords = sizeof(RowParams) / 4, kSampleWords = sizeof(RowSample) / 4;
                  std::vector<RowParams> all(static_cast<size_t>(rows), params);
                  for (int i = 0; i < rows; ++i) all[static_cast<size_t>(i)].row = i;
                  std::vector<int32_t> words(all.size() * kParamWords);
                  std::memcpy(words.data(), all.data(), all.size() * sizeof(RowParams));
                  SampleRowsArgs args;
                  args.logits = arrays.Values(DType::kF32, {rows, vocab}, -8.0f, 8.0f);
                  args.num_ids = vocab;
                  const TensorView in = arrays.Of(words);
                  args.samples = arrays.Zeros(DType::kI32, {rows, kSampleWords});
                  if (!arrays.status().ok()) return {};
                  args.params = TensorView(in.raw(), DType::kI32, {rows, kParamWords});
                  return Repeat(bench, kSampleRows, args);
                });
}

}  // namespace

void RowOpRows(GpuBench& bench) {
  bench.Section("Row operations", 0.12);
  Norms(bench);
  RotateAndActivate(bench);
  Favor(bench);
  Mamba2Rows(bench);
  Lookups(bench);
  RowParams params;
  params.temperature = 0;
  Sampling(bench, "sample, arg-max", params);
  params.temperature = 0.8f;
  params.top_p = 0.95f;
  Sampling(bench, "sample, top-p 0.95", params);
}

}  // namespace weir::bench
