// The feature maps and the recurrence together against tests/golden: flash-linear-attention's naive form for
// elu + 1, and Performer's quadratic form in double precision.
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "tests/support/golden_fill.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

using nlohmann::json;

// q, k, v as [tokens, heads * dim]; a tensor of rank 2 (features) transposed.
struct OpGolden {
  explicit OpGolden(const std::string& name) {
    std::ifstream stream(WEIR_SOURCE_DIR "/tests/golden/" + name + ".json");
    file = json::parse(stream);
    for (const json& tensor : file.at("tensors")) {
      const auto tensor_name = tensor.at("name").get<std::string>();
      const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
      const int64_t columns = shape.size() == 3 ? shape[1] * shape[2] : shape[1];
      const std::vector<float> values = testing::GoldenFill(
          tensor_name, static_cast<size_t>(shape[0] * columns), tensor.at("scale"), tensor.at("offset"));
      const bool transposed = shape.size() == 2;
      auto& to = tensors[tensor_name] =
          transposed
              ? std::make_unique<Guarded>(DType::kF32, std::initializer_list<int64_t>{columns, shape[0]})
              : std::make_unique<Guarded>(DType::kF32, std::initializer_list<int64_t>{shape[0], columns});
      for (int64_t i = 0; i < shape[0]; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          const float value = values[static_cast<size_t>(i * columns + j)];
          (transposed ? to->row<float>(j)[i] : to->row<float>(i)[j]) = value;
        }
      if (shape.size() == 3) heads = static_cast<int>(shape[1]);
    }
    for (const json& row : file.at("o"))
      for (const double value : row) o.push_back(value);
  }
  const TensorView& operator[](const std::string& name) const { return tensors.at(name)->view(); }
  int num_tokens() const { return static_cast<int>((*this)["q"].num_rows()); }

  json file;
  std::map<std::string, std::unique_ptr<Guarded>> tensors;
  int heads = 0;
  std::vector<double> o;
};

// The normalised recurrence over φ(q), φ(k), from an empty state.
std::vector<double> Recur(const OpGolden& golden, const TensorView& q, const TensorView& k,
                          const TensorView& log_decay, WholeChunks way, Device& device) {
  const Ragged ragged({{golden.num_tokens(), 0, 0}});
  const int64_t heads = golden.heads;
  const int64_t state_dim = k.row_size() / heads;
  const int64_t head_dim = golden["v"].row_size() / heads;
  Guarded s_outer(DType::kF32, {1, heads, state_dim, head_dim}),
      s_inner(DType::kF32, {1, heads, state_dim, head_dim});
  Guarded z_outer(DType::kF32, {1, heads, state_dim}), z_inner(DType::kF32, {1, heads, state_dim});
  for (Guarded* part : {&s_outer, &s_inner, &z_outer, &z_inner}) part->Fill(0.0);
  Guarded o(DType::kF32, {golden.num_tokens(), heads * head_dim});
  LinearRecurrenceCpuWith({.batch = ragged.batch(),
                           .q = q,
                           .k = k,
                           .v = golden["v"],
                           .log_decay = log_decay,
                           .s_outer = s_outer,
                           .s_inner = s_inner,
                           .z_outer = z_outer,
                           .z_inner = z_inner,
                           .o = o,
                           .num_heads = golden.heads,
                           .num_kv_heads = golden.heads},
                          way, device.stream());
  return o.ToDoubles();
}

TEST(GoldenOps, LinearAttentionEqualsTheNaiveForm) {
  const auto device = CreateTestDevice(2);
  const auto cpu = CreateCpuDevice(2);
  const OpGolden golden("linear_attention");
  for (const char* name : {"q", "k"}) RunKernel(kEluPlusOne, {golden[name], golden[name]}, *device);
  for (const WholeChunks way : {WholeChunks::kSteps, WholeChunks::kProducts})
    EXPECT_LT(MaxRelativeError(Recur(golden, golden["q"], golden["k"], {}, way, *cpu), golden.o), 1e-5);
}

TEST(GoldenOps, PerformerEqualsItsQuadraticForm) {
  const auto device = CreateTestDevice(2);
  const auto cpu = CreateCpuDevice(2);
  for (const auto& [name, bound] : {std::pair{"performer", 1e-5}, {"performer_far", 1e-4}}) {
    const OpGolden golden(name);
    const TensorView features = golden["features"];
    const int64_t columns = golden.heads * features.dim(1);
    const Ragged ragged({{golden.num_tokens(), 0, 0}});
    Guarded q(DType::kF32, {golden.num_tokens(), columns}), k(DType::kF32, {golden.num_tokens(), columns});
    Guarded maximum(DType::kF32, {1, golden.heads}),
        log_decay(DType::kF32, {golden.num_tokens(), golden.heads});
    RunKernel(kFavor, {ragged.batch(), golden["q"], features, golden.heads, q, {}, {}}, *device);
    RunKernel(kFavor, {ragged.batch(), golden["k"], features, golden.heads, k, maximum, log_decay}, *device);
    for (const WholeChunks way : {WholeChunks::kSteps, WholeChunks::kProducts})
      EXPECT_LT(MaxRelativeError(Recur(golden, q, k, log_decay, way, *cpu), golden.o), bound) << name;
  }
}

}  // namespace
}  // namespace weir
