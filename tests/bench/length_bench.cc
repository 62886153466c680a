// Length and Range of the default linear model (tales-linear) with a million real tokens: time, bytes and
// allocations of a step at position 1,000,000 against position 1,000, and the state against double precision.
// The tokens are those of ../shared/data/corpus; random ones where it is absent.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "model/weights/weight_map.h"
#include "runtime/base/check.h"
#include "runtime/device/cpu_device.h"
#include "tests/bench/bench_models.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/count_allocations.h"
#include "tests/support/model_harness.h"

namespace weir::bench {
namespace {

using testing::ModelHarness;

constexpr char kModel[] = "tales-linear";
constexpr int64_t kNear = 1'000;
constexpr int64_t kFar = 1'000'000;
constexpr int kPrefillStep = 2048;

// kFar ids and some more, repeated from the start where the corpus is shorter.
std::vector<int32_t> Tokens(const LoadedModel& model, int64_t count, bool* real) {
  std::vector<int32_t> ids;
  for (int book = 0; std::ssize(ids) < count; ++book) {
    std::ifstream in(fmt::format("{}/../shared/data/corpus/tales-{}.txt", WEIR_SOURCE_DIR, book));
    if (!in.good()) break;
    // In pieces that end at a space, so that no more is tokenized than is needed.
    std::string piece(1 << 18, '\0'), text;
    while (std::ssize(ids) < count && (in.read(piece.data(), std::ssize(piece)), in.gcount() > 0)) {
      text.append(piece, 0, static_cast<size_t>(in.gcount()));
      const size_t end = std::min(text.size(), text.rfind(' '));
      const auto encoded = model.tokenizer->Encode(std::string_view(text).substr(0, end), {});
      WEIR_CHECK(encoded.ok());
      ids.insert(ids.end(), encoded->begin(), encoded->end());
      text.erase(0, end);
    }
  }
  *real = !ids.empty();
  if (ids.empty()) return testing::RandomTokens(static_cast<int>(count), model.decoder->vocab_size(), 3);
  for (size_t i = 0; std::ssize(ids) < count; ++i) ids.push_back(ids[i]);
  ids.resize(static_cast<size_t>(count));
  return ids;
}

// The model, one sequence at kFar and one at kNear.
struct World {
  std::unique_ptr<Device> device = CreateCpuDevice(2);
  LoadedModel model = LoadZooModel(kModel, *device);
  ModelHarness harness{
      model.decoder, *device, {.slots = 2, .kv_blocks = 0, .max_tokens = kPrefillStep, .max_logits = 2}};
  bool real = false;
  std::vector<int32_t> tokens = Tokens(model, kFar, &real);
  ModelHarness::Sequence far = harness.NewSequence();
  ModelHarness::Sequence near = harness.NewSequence();
  std::vector<float> far_state;  // at kFar exactly
  double prefill_seconds = 0;

  World() {
    const auto start = Clock::now();
    Feed(&far, kFar);
    prefill_seconds = SecondsSince(start);
    Feed(&near, kNear);
    far_state = harness.State(far);
  }
  void Feed(ModelHarness::Sequence* sequence, int64_t until) {
    while (sequence->position < until) {
      const int64_t n = std::min<int64_t>(kPrefillStep, until - sequence->position);
      const ModelHarness::Slice slice{sequence, std::span(tokens).subspan(sequence->position, n), 1};
      harness.StepInPlace({&slice, 1});
    }
  }
};

World& TheWorld() {
  static World world;
  return world;
}

// One decode step of each sequence in turn, the order changing each time. Counters: median microseconds of
// both and their ratio (aim: at most 1.02), bytes per session and allocations per step at both.
void BM_StepAtPosition(benchmark::State& state) {
  World& world = TheWorld();
  struct Side {
    ModelHarness::Sequence* sequence;
    std::vector<double> seconds;
    int64_t allocations = 0;
  } sides[2] = {{&world.near, {}}, {&world.far, {}}};
  for (Side& side : sides) side.seconds.reserve(1 << 20);
  int64_t round = 0;
  for (auto _ : state) {
    for (int i = 0; i < 2; ++i) {
      Side& side = sides[(round + i) % 2];
      const ModelHarness::Slice slice{side.sequence, std::span(world.tokens).subspan(round % kFar, 1), 1};
      const testing::AllocationCounter counter;
      const auto start = Clock::now();
      const TensorView logits = world.harness.StepInPlace({&slice, 1});
      side.seconds.push_back(SecondsSince(start));
      side.allocations += counter.count();
      benchmark::DoNotOptimize(logits.raw());
    }
    ++round;
  }
  const double near = Quantile(&sides[0].seconds, 0.5), far = Quantile(&sides[1].seconds, 0.5);
  state.counters["us_at_1k"] = near * 1e6;
  state.counters["us_at_1M"] = far * 1e6;
  state.counters["ratio"] = far / near;
  const auto steps = static_cast<double>(round);
  if (testing::CountsAllocations()) {
    state.counters["allocs_at_1k"] = static_cast<double>(sides[0].allocations) / steps;
    state.counters["allocs_at_1M"] = static_cast<double>(sides[1].allocations) / steps;
  }
  // What a sequence holds: its slot, and blocks if it had any.
  const auto bytes = [&](const ModelHarness::Sequence& sequence) {
    return static_cast<double>(world.harness.arena().slot_bytes() +
                               std::ssize(sequence.blocks.blocks()) *
                                   world.model.decoder->Paged().block_bytes(kKvBlockTokens));
  };
  state.counters["bytes_at_1k"] = bytes(world.near);
  state.counters["bytes_at_1M"] = bytes(world.far);
  state.counters["prefill_tokens/s"] = static_cast<double>(kFar) / world.prefill_seconds;
  state.SetLabel(world.real ? "corpus" : "random tokens: no ../shared/data/corpus");
}
// The fixed number lets both sequences cross as many borders of 1,024 positions.
BENCHMARK(BM_StepAtPosition)->Iterations(4096)->UseRealTime();

// The first layer's keys and values depend on the last few tokens alone, so that a sum in double precision
// over all tokens is cheap. Made from the checkpoint, apart from the model's kernels.
class FirstLayer {
 public:
  explicit FirstLayer(const LoadedModel& model) : vocab_(model.decoder->vocab_size()) {
    absl::StatusOr<WeightMap> opened = WeightMap::Open(ZooFolder(kModel));
    WEIR_CHECK(opened.ok());
    const WeightMap& weights = *opened;
    const auto get = [&](const char* name) {
      const SafetensorsEntry* entry = weights.Find(name);
      WEIR_CHECK(entry != nullptr);
      return *weights.Get(name, entry->shape);
    };
    const WeightTensor embedding = get("model.embeddings.weight");
    const std::vector<float> table = embedding.ToF32(), norm = get("model.layers.0.attn_norm.weight").ToF32();
    d_ = embedding.shape[1];
    // One row per id: the normalised embedding, rounded as the product rounds it.
    std::vector<double> x(table.size());
    for (int64_t id = 0; id < vocab_; ++id) {
      double squares = 0;
      for (int64_t i = 0; i < d_; ++i) squares += std::pow(static_cast<double>(table[id * d_ + i]), 2);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(d_) + 1e-5);
      for (int64_t i = 0; i < d_; ++i)
        x[id * d_ + i] = BF16::FromFloat(static_cast<float>(table[id * d_ + i] * factor * norm[i])).ToFloat();
    }
    Project(x, get("model.layers.0.attn.k_proj.weight"), get("model.layers.0.attn.k_conv1d.weight"), &k_);
    Project(x, get("model.layers.0.attn.v_proj.weight"), get("model.layers.0.attn.v_conv1d.weight"), &v_);
  }

  // s: [heads, head_dim, head_dim] and z: [heads, head_dim] after all tokens.
  void Sum(const std::vector<int32_t>& tokens, int64_t heads, std::vector<double>* s,
           std::vector<double>* z) const {
    const int64_t dim = d_ / heads;
    s->assign(static_cast<size_t>(d_ * dim), 0);
    z->assign(static_cast<size_t>(d_), 0);
    std::vector<double> k(static_cast<size_t>(d_)), v(k.size());
    for (int64_t t = 0; t < std::ssize(tokens); ++t) {
      Convolve(k_, tokens, t, &k);
      Convolve(v_, tokens, t, &v);
      for (double& value : k) value = value > 0 ? value + 1 : std::exp(value);
      for (int64_t i = 0; i < d_; ++i) {
        (*z)[i] += k[i];
        double* row = s->data() + i * dim;
        const double* values = v.data() + i / dim * dim;
        for (int64_t j = 0; j < dim; ++j) row[j] += k[i] * values[j];
      }
    }
  }

 private:
  struct Projected {
    std::vector<double> rows;    // [vocab, d]
    std::vector<double> filter;  // [d, width], oldest first
    int64_t width = 0;
  };

  void Project(const std::vector<double>& x, const WeightTensor& weight, const WeightTensor& conv,
               Projected* out) const {
    WEIR_CHECK(weight.shape[0] == d_ && weight.shape[1] == d_);
    const std::vector<float> w = weight.ToF32();
    out->rows.resize(static_cast<size_t>(vocab_ * d_));
    for (int64_t id = 0; id < vocab_; ++id) {
      for (int64_t n = 0; n < d_; ++n) {
        double sum = 0;
        for (int64_t i = 0; i < d_; ++i) sum += x[id * d_ + i] * w[n * d_ + i];
        out->rows[id * d_ + n] = sum;
      }
    }
    const std::vector<float> filter = conv.ToF32();
    out->filter.assign(filter.begin(), filter.end());
    out->width = conv.shape.back();
  }

  void Convolve(const Projected& p, const std::vector<int32_t>& tokens, int64_t t,
                std::vector<double>* y) const {
    std::fill(y->begin(), y->end(), 0.0);
    for (int64_t w = std::max<int64_t>(0, p.width - 1 - t); w < p.width; ++w) {
      const double* row = p.rows.data() + tokens[t - p.width + 1 + w] * d_;
      for (int64_t i = 0; i < d_; ++i) (*y)[i] += p.filter[i * p.width + w] * row[i];
    }
    for (double& value : *y) value /= 1 + std::exp(-value);
  }

  const int64_t vocab_;
  int64_t d_ = 0;
  Projected k_, v_;
};

// The first layer's S, z and S/z after a million tokens. Counters: largest error over the largest value (aim:
// at most 1e-3), and the largest entry of z.
void BM_RangeAtAMillionTokens(benchmark::State& state) {
  World& world = TheWorld();
  const std::vector<TensorView>& tensors = world.harness.arena().tensors();
  const int64_t heads = tensors[0].dim(1), dim = tensors[0].dim(2);
  // A slot's blob begins with the first layer's s_outer, s_inner, z_outer and z_inner, each on a border of 64
  // bytes as these sizes are.
  const int64_t s_size = heads * dim * dim, z_size = heads * dim;
  WEIR_CHECK(tensors[0].dim(3) == dim && s_size % 16 == 0 && z_size % 16 == 0);
  const float* blob = world.far_state.data();
  std::vector<double> s, z;
  for (auto _ : state) FirstLayer(world.model).Sum(world.tokens, heads, &s, &z);
  double s_error = 0, s_max = 0, z_error = 0, z_max = 0, ratio_error = 0, ratio_max = 0;
  for (int64_t i = 0; i < z_size; ++i) {
    const double got_z = static_cast<double>(blob[2 * s_size + i]) + blob[2 * s_size + z_size + i];
    z_error = std::max(z_error, std::abs(got_z - z[i]));
    z_max = std::max(z_max, z[i]);
    for (int64_t j = i * dim; j < (i + 1) * dim; ++j) {
      const double got = static_cast<double>(blob[j]) + blob[s_size + j];
      s_error = std::max(s_error, std::abs(got - s[j]));
      s_max = std::max(s_max, std::abs(s[j]));
      ratio_error = std::max(ratio_error, std::abs(got / got_z - s[j] / z[i]));
      ratio_max = std::max(ratio_max, std::abs(s[j] / z[i]));
    }
  }
  state.counters["s_error"] = s_error / s_max;
  state.counters["z_error"] = z_error / z_max;
  state.counters["s/z_error"] = ratio_error / ratio_max;
  state.counters["z_max"] = z_max;
  state.SetLabel(world.real ? "corpus" : "random tokens: no ../shared/data/corpus");
}
BENCHMARK(BM_RangeAtAMillionTokens)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace weir::bench

BENCHMARK_MAIN();
