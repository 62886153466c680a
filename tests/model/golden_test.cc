// Whole decoders against the reference implementations: each tests/golden/*.json holds a configuration,
// weights as hashes of their names, token ids and the logits at every position (tests/golden/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "model/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/support/golden_fill.h"
#include "tests/support/model_harness.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_column.h"

namespace weir::testing {
namespace {

using nlohmann::json;

struct Golden {
  std::string config;  // the text of config.json, which may hold a bare Infinity
  std::vector<TensorSpec> tensors;
  std::vector<int32_t> tokens;
  std::vector<size_t> positions;  // of the logits' rows
  std::vector<std::vector<float>> logits;
};

Golden ReadGolden(const std::string& name, DType dtype) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/golden/" + name + ".json");
  WEIR_CHECK(file.good());
  Golden golden;
  std::string rest;
  const std::string key = "\"config\": ";  // a line of its own
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key))
      golden.config = line.substr(key.size(), line.rfind('}') + 1 - key.size());
    else
      rest += line;
  }
  const json read = json::parse(rest);
  golden.tokens = read.at("token_ids").get<std::vector<int32_t>>();
  golden.logits = read.at("logits").get<std::vector<std::vector<float>>>();
  golden.positions = read.value("positions", std::vector<size_t>());
  for (size_t i = 0; golden.positions.size() < golden.logits.size(); ++i) golden.positions.push_back(i);
  for (const json& tensor : read.at("tensors")) {
    const auto tensor_name = tensor.at("name").get<std::string>();
    const auto shape = tensor.at("shape").get<std::vector<int64_t>>();
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    const std::vector<float> values = GoldenFill(tensor_name, count, tensor.at("scale"), tensor.at("offset"));
    golden.tensors.push_back(dtype == DType::kF32 ? F32Tensor(tensor_name, shape, values)
                                                  : HalfTensor<BF16>(tensor_name, shape, values));
  }
  return golden;
}

class GoldenLogits : public ::testing::TestWithParam<std::string> {
 protected:
  // The largest difference to the golden logits over prefill, steps, and both mixed beside another sequence.
  static void Compare(DType dtype, double bound) {
    const Golden golden = ReadGolden(GetParam(), dtype);
    ASSERT_EQ(golden.positions.size(), golden.logits.size());
    const TempDir folder;
    folder.Write("config.json", golden.config);
    folder.Write("model.safetensors", SafetensorsBytes(golden.tensors));
    const std::unique_ptr<Device> device = CreateTestDevice(2);
    LoadOptions options;
    options.ids_only = true;
    const absl::StatusOr<LoadedModel> model = LoadModel(folder.path(), *device, options);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->weight_dtype, dtype);
    ModelHarness harness(model->decoder, *device);
    for (const std::vector<int>& cuts : {std::vector<int>{1 << 20}, {1}, {3, 1, 1, 7, 1, 62, 1, 2}}) {
      ModelHarness::Sequence sequence = harness.NewSequence();
      ExpectNear(harness.Feed(&sequence, golden.tokens, cuts), golden, bound,
                 "first cut " + std::to_string(cuts[0]));
    }
    ExpectNear(BesideAnother(&harness, golden.tokens), golden, bound, "beside another sequence");
  }

 private:
  static std::vector<std::vector<float>> BesideAnother(ModelHarness* harness,
                                                       const std::vector<int32_t>& tokens) {
    ModelHarness::Sequence mine = harness->NewSequence();
    ModelHarness::Sequence other = harness->NewSequence();
    std::vector<std::vector<float>> rows;
    for (size_t at = 0, n = 0; at < tokens.size(); at += n) {
      n = std::min<size_t>(at % 2 == 0 ? 1 : 20, tokens.size() - at);
      const auto begin = tokens.begin() + static_cast<int64_t>(at);
      auto step = harness->Step({{&other, std::vector<int32_t>(5, 3)}, {&mine, {begin, begin + n}}});
      rows.insert(rows.end(), step.begin() + 5, step.end());
    }
    return rows;
  }

  static void ExpectNear(const std::vector<std::vector<float>>& got, const Golden& golden, double bound,
                         const std::string& form) {
    ASSERT_EQ(got.size(), golden.tokens.size());
    double largest = 0;
    for (size_t i = 0; i < golden.positions.size(); ++i) {
      const std::vector<float>& row = got[golden.positions[i]];
      ASSERT_EQ(row.size(), golden.logits[i].size());
      for (size_t id = 0; id < row.size(); ++id) {
        ASSERT_TRUE(std::isfinite(row[id]));
        largest = std::max(largest, static_cast<double>(std::abs(row[id] - golden.logits[i][id])));
      }
    }
    RecordProperty(form, std::to_string(largest));
    EXPECT_LE(largest, bound) << form;
  }
};

TEST_P(GoldenLogits, InF32) { Compare(DType::kF32, 1e-4); }

// Logits are of size 3 to 4. Weights are rounded to bf16, and so are the inputs of every product.
TEST_P(GoldenLogits, InBF16) { Compare(DType::kBF16, 0.15); }

INSTANTIATE_TEST_SUITE_P(Files, GoldenLogits,
                         ::testing::Values("falcon_mamba", "falcon_mamba_eps", "llama_gqa", "llama_tied",
                                           "mamba_authors", "mamba_biases", "mamba_long", "mamba_tied",
                                           "mamba2_authors", "mamba2_groups2", "mamba2_groups2_long",
                                           "mamba2_groups3", "mamba2_limit", "mamba2_long",
                                           "mamba2_norm_before_gate", "mamba2_tied"),
                         [](const auto& test) { return test.param; });

// README.md's example.
TEST(GoldenFilling, HashesAsTheGeneratorDoes) {
  const std::vector<float> q = GoldenFill("q", 1001, 1, 0);
  EXPECT_FLOAT_EQ(q[0], 0.355183005f);
  EXPECT_FLOAT_EQ(q[1], 0.307187557f);
  EXPECT_FLOAT_EQ(q[2], 0.131663918f);
  EXPECT_FLOAT_EQ(q[1000], -0.761206746f);
}

}  // namespace
}  // namespace weir::testing
