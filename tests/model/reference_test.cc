// Whole decoders against what others computed: llama2.c's stories260K, and the zoo's twins in PyTorch.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/support/model_harness.h"

namespace weir::testing {
namespace {

using nlohmann::json;

json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

std::vector<int32_t> GreedyIds(ModelHarness* harness, const std::vector<int32_t>& prompt, size_t count) {
  ModelHarness::Sequence sequence = harness->NewSequence();
  std::vector<int32_t> ids;
  std::vector<float> logits = harness->Step({{&sequence, prompt}}).back();
  while (ids.size() < count) {
    ids.push_back(ArgMax(logits));
    logits = harness->Step({{&sequence, {ids.back()}}}).back();
  }
  return ids;
}

TEST(Reference, Stories260kLogitsGreedyIdsAndText) {
  const std::string folder = WEIR_SOURCE_DIR "/../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs ../shared/data/stories260k";
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(model->decoder, *device);
  const json expected = ReadJson(folder + "/expected.json");

  ModelHarness::Sequence sequence = harness.NewSequence();
  const std::vector<float> logits = harness.Step({{&sequence, {1}}}).back();
  const auto want = expected["logits_after_bos"].get<std::vector<float>>();
  ASSERT_EQ(logits.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(logits[i], want[i], 1e-4) << "id " << i;

  // The file's list begins with the BOS token that is the prompt.
  auto want_ids = expected["greedy_token_ids"].get<std::vector<int32_t>>();
  const size_t steps = expected["greedy_steps"].get<size_t>();
  std::vector<int32_t> ids = GreedyIds(&harness, {1}, steps);
  ids.insert(ids.begin(), 1);
  const size_t common = std::min(ids.size(), want_ids.size());
  ASSERT_GE(common, 200u);
  ids.resize(common);
  want_ids.resize(common);
  EXPECT_EQ(ids, want_ids);
  EXPECT_EQ(model->tokenizer->Decode(ids).substr(0, 60),
            expected["greedy_text"].get<std::string>().substr(0, 60));
}

class Zoo : public ::testing::TestWithParam<std::string> {};

TEST_P(Zoo, LogitsAndGreedyIdsEqualPyTorch) {
  const std::string folder = std::string(WEIR_SOURCE_DIR "/model/zoo/") + GetParam();
  const std::unique_ptr<Device> device = CreateCpuDevice(2);
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(model->decoder, *device);
  for (const json& expected : ReadJson(folder + "/expected.json")["cases"]) {
    const auto prompt = expected["prompt_token_ids"].get<std::vector<int32_t>>();
    ModelHarness::Sequence sequence = harness.NewSequence();
    const std::vector<float> logits = harness.Step({{&sequence, prompt}}).back();
    const auto want = expected["logits_after_prompt"].get<std::vector<float>>();
    // The file was computed in f32 on the same bf16 weights; here activations are rounded to bf16 before each
    // product.
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(logits[i], want[i], 0.25) << "id " << i;
    if (expected.contains("greedy_token_ids")) {
      const auto want_ids = expected["greedy_token_ids"].get<std::vector<int32_t>>();
      // Up to the first near-tie, which the file names, every id is certain.
      const auto certain = expected["certain_greedy_ids"].get<size_t>();
      const std::vector<int32_t> ids = GreedyIds(&harness, prompt, certain);
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), want_ids.begin()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Twins, Zoo, ::testing::Values("tales-linear", "tales-softmax"),
                         [](const auto& test) {
                           return test.param == "tales-linear" ? "Linear" : "Softmax";
                         });

}  // namespace
}  // namespace weir::testing
