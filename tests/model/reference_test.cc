// Whole decoders against what others computed: llama2.c's stories260K, llama.cpp's Mamba, and the zoo's twins
// in PyTorch.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/loaded_model.h"
#include "nlohmann/json.hpp"
#include "tests/support/model_harness.h"
#include "tests/support/test_column.h"

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
  const std::unique_ptr<Device> device = CreateTestDevice(2);
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

// Weights of a seeded script, logits recorded from llama.cpp.
class LlamaCpp : public ::testing::TestWithParam<std::string> {};

TEST_P(LlamaCpp, LogitsEqualWhateverTheCut) {
  const std::string folder = WEIR_SOURCE_DIR "/../shared/data/" + GetParam() + "-llamacpp";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs " << folder;
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  LoadOptions ids_only;
  ids_only.ids_only = true;
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, ids_only);
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(model->decoder, *device);
  const json expected = ReadJson(folder + "/expected.json");
  const auto prompt = expected.at("prompt_token_ids").get<std::vector<int32_t>>();
  const auto want = expected.at("logits_after_last_prompt_token").get<std::vector<float>>();
  for (const std::vector<int>& cut : {std::vector<int>{6}, {1}, {2, 3, 1}}) {
    ModelHarness::Sequence sequence = harness.NewSequence();
    const std::vector<float> logits = harness.Feed(&sequence, prompt, cut).back();
    ASSERT_EQ(logits.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(logits[i], want[i], 1e-4) << "id " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LlamaCpp, ::testing::Values("mamba", "mamba2"),
                         [](const auto& test) { return test.param; });

class Zoo : public ::testing::TestWithParam<std::string> {};

// expected.json was computed in f32 on the bf16 weights.
TEST_P(Zoo, InF32LogitsAndGreedyIdsEqualPyTorch) {
  const std::string folder = WEIR_SOURCE_DIR "/model/zoo/tales-" + GetParam();
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  LoadOptions f32;
  f32.weight_dtype = DType::kF32;
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, f32);
  ASSERT_TRUE(model.ok()) << model.status();
  ModelHarness harness(model->decoder, *device);
  const json cases = ReadJson(folder + "/expected.json").at("cases");
  ASSERT_GE(cases.size(), 2u);
  for (const json& expected : cases) {
    const auto prompt = expected.at("prompt_token_ids").get<std::vector<int32_t>>();
    ModelHarness::Sequence sequence = harness.NewSequence();
    const std::vector<float> logits = harness.Step({{&sequence, prompt}}).back();
    const auto want = expected.at("logits_after_prompt_first_16").get<std::vector<float>>();
    ASSERT_EQ(want.size(), 16u);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(logits[i], want[i], 1e-3) << "id " << i;
    auto want_ids = expected.at("greedy_token_ids").get<std::vector<int32_t>>();
    if (SlowKernels()) want_ids.resize(8);
    ASSERT_GT(expected.at("top2_gap_min").get<double>(), 2e-4);  // so that no id is a matter of rounding
    EXPECT_EQ(GreedyIds(&harness, prompt, want_ids.size()), want_ids);
    if (SlowKernels()) break;
  }
}

// As served, each product rounds its activations to bf16 first, and softmax keeps keys and values in 16 bits.
TEST_P(Zoo, AsServedLogitsStayWithinTheBoundOfBf16) {
  const std::string folder = WEIR_SOURCE_DIR "/model/zoo/tales-" + GetParam();
  const std::unique_ptr<Device> device = CreateTestDevice(2);
  const absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->weight_dtype, DType::kBF16);
  ModelHarness harness(model->decoder, *device);
  const json cases = ReadJson(folder + "/expected.json").at("cases");
  for (const json& expected : cases) {
    const auto prompt = expected.at("prompt_token_ids").get<std::vector<int32_t>>();
    ModelHarness::Sequence sequence = harness.NewSequence();
    const std::vector<float> logits = harness.Step({{&sequence, prompt}}).back();
    const auto want = expected.at("logits_after_prompt_first_16").get<std::vector<float>>();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(logits[i], want[i], 0.15) << "id " << i;
    // The largest one too; which id has it can be a matter of rounding.
    const auto largest = expected.at("logits_after_prompt_max").get<float>();
    EXPECT_NEAR(logits[expected.at("logits_after_prompt_argmax").get<size_t>()], largest, 0.15);
    EXPECT_NEAR(logits[static_cast<size_t>(ArgMax(logits))], largest, 0.15);
    if (SlowKernels()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Twins, Zoo, ::testing::Values("linear", "mamba", "mamba2", "performer", "softmax"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weir::testing
