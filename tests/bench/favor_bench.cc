// What Performer's number of features d' buys and costs: the error of FAVOR+ attention against exact softmax
// attention of the same queries, keys and values, beside the bytes of a state, the time of a decode step, and
// the context from which the state is smaller and the step quicker than those of a paged KV cache. One layer
// of three heads of 64, as in the zoo's twins; features are blockwise orthogonal, as theirs (Choromanski et
// al. 2021, section 3.3).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "fmt/format.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/attention/attention.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/cost.h"
#include "tests/support/recurrence_case.h"

namespace weir {
namespace {

constexpr int kHeads = 3;
constexpr int kDim = 64;
constexpr int kContext = 1024;  // tokens over which errors are measured
constexpr int kFirst = 256;     // from this one on
constexpr int kDraws = 3;       // of features and of q, k, v
constexpr int kSequences = 64;  // in a decode step
constexpr int kDepth = 4096;    // of the KV cache, for its time per token of context

// Each block of kDim columns is an orthogonal basis whose vectors have the lengths of Gaussian ones; [kDim,
// count].
void FillOrthogonal(const Guarded& features, int count, Random& random) {
  std::vector<std::vector<double>> block;
  for (int i = 0; i < count; ++i) {
    if (i % kDim == 0) block.clear();
    std::vector<double> w(kDim);
    for (double& value : w) value = random.Normal();
    const double length = std::sqrt(std::inner_product(w.begin(), w.end(), w.begin(), 0.0));
    for (const std::vector<double>& other : block) {
      const double along = std::inner_product(w.begin(), w.end(), other.begin(), 0.0);
      for (int j = 0; j < kDim; ++j) w[static_cast<size_t>(j)] -= along * other[static_cast<size_t>(j)];
    }
    const double left = std::sqrt(std::inner_product(w.begin(), w.end(), w.begin(), 0.0));
    for (double& value : w) value /= left;
    block.push_back(w);
    for (int j = 0; j < kDim; ++j)
      features.row<float>(j)[i] = static_cast<float>(w[static_cast<size_t>(j)] * length);
  }
}

// Performer's part of a layer: feature maps of q and k, then the recurrence.
class Performer {
 public:
  Performer(int features, const std::vector<RunSpec>& runs, uint64_t seed)
      : ragged_(runs),
        q(DType::kF32, {ragged_.num_tokens(), kHeads * kDim}),
        k(DType::kF32, {ragged_.num_tokens(), kHeads * kDim}),
        features_(DType::kF32, {kDim, features}),
        shape_{kHeads, kHeads, features, kDim, true, Decay::kRare},
        tokens_(shape_, ragged_.num_tokens(), seed),
        state_(shape_, static_cast<int>(runs.size())),
        maximum_(DType::kF32, {static_cast<int64_t>(runs.size()), kHeads}) {
    Random random(seed);
    FillOrthogonal(features_, features, random);
    maximum_.Fill(0.0);
  }
  void Run(Stream& stream) {
    FavorCpu({ragged_.batch(), q, features_, kHeads, tokens_.q, {}, {}}, stream);
    FavorCpu({ragged_.batch(), k, features_, kHeads, tokens_.k, maximum_, tokens_.log_decay}, stream);
    LinearRecurrenceCpu(MakeArgs(shape_, ragged_, tokens_, state_), stream);
  }
  // What query `t` of a head gives tokens 0..t, up to a factor.
  std::vector<double> Weights(int t, int head) const {
    const int features = shape_.state_dim;
    const float* query = tokens_.q.row<float>(t) + head * features;
    std::vector<double> weights(static_cast<size_t>(t) + 1);
    double log_decay = 0.0;
    for (int s = t; s >= 0; --s) {
      weights[static_cast<size_t>(s)] =
          std::exp(log_decay) *
          std::inner_product(query, query + features, tokens_.k.row<float>(s) + head * features, 0.0);
      log_decay += tokens_.log_decay.row<float>(s)[head];
    }
    return weights;
  }

 private:
  const Ragged ragged_;

 public:
  const Guarded q, k;

 private:
  const Guarded features_;
  const RecurrenceShape shape_;
  const RecurrenceTokens tokens_;
  RecurrenceState state_;
  Guarded maximum_;
};

// What query `t` of a head gives tokens 0..t, up to a factor: of exact softmax attention.
std::vector<double> Softmax(const Performer& performer, int t, int head) {
  const float* q = performer.q.row<float>(t) + head * kDim;
  std::vector<double> weights;
  for (int s = 0; s <= t; ++s)
    weights.push_back(std::inner_product(q, q + kDim, performer.k.row<float>(s) + head * kDim, 0.0) /
                      std::sqrt(kDim));
  const double top = *std::max_element(weights.begin(), weights.end());
  for (double& weight : weights) weight = std::exp(weight - top);
  return weights;
}

// Half of sum |a - b| of the shares, from 0 to 1: how much attention goes to other tokens than softmax's.
double Astray(std::vector<double> a, std::vector<double> b) {
  for (std::vector<double>* shares : {&a, &b}) {
    const double sum = std::accumulate(shares->begin(), shares->end(), 0.0);
    for (double& share : *shares) share /= sum;
  }
  double apart = 0.0;
  for (size_t i = 0; i < a.size(); ++i) apart += std::abs(a[i] - b[i]);
  return apart / 2.0;
}

// Of q and k whose scores have the standard deviation `spread`: at 0.25 all tokens count nearly alike, at 2 a
// few of a thousand have most of the weight. Averaged over queries.
double MeanAstray(int features, double spread, Stream& stream) {
  double sum = 0.0;
  int count = 0;
  for (uint64_t draw = 1; draw <= kDraws; ++draw) {
    Performer performer(features, {{kContext, 0, 0}}, draw);
    Random random(100 + draw);
    random.FillNormal(performer.q, std::sqrt(spread));
    random.FillNormal(performer.k, std::sqrt(spread));
    performer.Run(stream);
    for (int t = kFirst; t < kContext; t += 64) {
      for (int head = 0; head < kHeads; ++head, ++count)
        sum += Astray(Softmax(performer, t, head), performer.Weights(t, head));
    }
  }
  return sum / count;
}

// Seconds of the quickest call within `budget` seconds.
template <class Function>
double Quickest(double budget, Function function) {
  using Clock = std::chrono::steady_clock;
  function();
  double best = 1e9, spent = 0.0;
  while (spent < budget) {
    const auto begin = Clock::now();
    function();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

double StepSeconds(int features, double budget, Stream& stream) {
  std::vector<RunSpec> runs;
  for (int slot = 0; slot < kSequences; ++slot) runs.push_back({1, 5, slot});
  Performer performer(features, runs, 1);
  Random random(2);
  random.FillNormal(performer.q);
  random.FillNormal(performer.k);
  return Quickest(budget, [&] { performer.Run(stream); });
}

// The same step over a bf16 KV cache of kDepth tokens a sequence, write included.
double SoftmaxSeconds(double budget, int threads, Stream& stream) {
  constexpr int kBlocksEach = kDepth / kKvBlockTokens;
  std::vector<RunSpec> runs;
  for (int slot = 0; slot < kSequences; ++slot) runs.push_back({1, kDepth - 1, slot});
  const Ragged ragged(runs);
  std::vector<int32_t> blocks(kSequences * kBlocksEach);
  std::iota(blocks.begin(), blocks.end(), 0);
  RaggedBatch batch = ragged.batch();
  batch.block_tables = TensorView(blocks.data(), DType::kI32, {kSequences, kBlocksEach});
  const auto count = static_cast<int64_t>(blocks.size());
  const Guarded keys(DType::kBF16, {count, kHeads, kDim, kKvBlockTokens});
  const Guarded values(DType::kBF16, {count, kHeads, kKvBlockTokens, kDim});
  const Guarded q(DType::kF32, {kSequences, kHeads * kDim}), k(DType::kF32, {kSequences, kHeads * kDim});
  const Guarded o(DType::kF32, {kSequences, kHeads * kDim});
  const Guarded scratch(DType::kF32, {AttentionScratchElements(kSequences, kDepth, kHeads, kDim, threads)});
  Random random(3);
  for (const Guarded* x : {&keys, &values, &q, &k}) random.FillNormal(*x);
  const PagedKv kv{keys, values};
  return Quickest(budget, [&] {
    KvWriteCpu({batch, k, q, kv}, stream);
    AttentionCpu({batch, q, kv, o, scratch, kHeads, 0.125f}, stream);
  });
}

int Main(double budget, int threads) {
  const auto device = CreateCpuDevice(threads);
  Stream& stream = device->stream();
  const double kv_seconds = SoftmaxSeconds(budget, threads, stream) / kDepth;
  const int64_t kv_bytes = KvBytesPerToken(kHeads, kDim);
  fmt::print("one layer, {} heads of {}, {} sequences, {} threads; bf16 KV cache: {} bytes a token\n", kHeads,
             kDim, kSequences, threads, kv_bytes);
  fmt::print(
      "features  astray(.25) (.5)    (1)    (2)  state_bytes  smaller_from  step_us  quicker_from  of_128\n");
  const double unit = StepSeconds(128, budget, stream);
  for (int features = 16; features <= 1024; features *= 2) {
    const int64_t bytes = RecurrenceStateBytes(kHeads, features, kDim);
    const double step = StepSeconds(features, budget, stream);
    fmt::print("{:8}    ", features);
    for (const double spread : {0.25, 0.5, 1.0, 2.0})
      fmt::print(" {:6.3f}", MeanAstray(features, spread, stream));
    fmt::print(" {:12} {:13} {:8.1f} {:13.0f} {:7.2f}\n", bytes, BreakEvenTokens(bytes, kv_bytes), step * 1e6,
               step / kv_seconds, step / unit);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace weir

// weir_favor_bench [seconds per time] [threads]
int main(int argc, char** argv) {
  return weir::Main(argc > 1 ? std::atof(argv[1]) : 0.5, argc > 2 ? std::atoi(argv[2]) : 2);
}
