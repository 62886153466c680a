// Weights that others trained, through the whole server.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/support/server_fixture.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

TEST(Stories, TwoHundredGreedyTokensAndTheTextAreExactly) {
  const std::string folder = WEIR_SOURCE_DIR "/../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs ../shared/data/stories260k";
  std::ifstream file(folder + "/expected.json");
  const auto expected = nlohmann::json::parse(file);
  const auto device = CreateCpuDevice(1);
  absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, {});
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<ServedModel> models;
  models.push_back(MakeServedModel(*std::move(model), {.slots = 4, .kv_blocks = 64}));
  ServerFixture fixture(std::move(models));

  const Answer answer = Generate(fixture.generation(), GreedyRequest({1}, 200));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.what_is_wrong, "");
  auto want = expected["greedy_token_ids"].get<std::vector<int32_t>>();
  want.erase(want.begin());  // the BOS token of the prompt
  ASSERT_GE(answer.token_ids.size(), want.size());
  EXPECT_TRUE(std::equal(want.begin(), want.end(), answer.token_ids.begin()));
  // What llama2.c's own test prints, which ends in mid-sentence; the last token may go on behind it.
  const auto text = expected["greedy_text"].get<std::string>();
  EXPECT_EQ(answer.text.substr(0, text.size()), text);
}

TEST(Stories, TextPromptsAndTokenPromptsAgree) {
  const std::string folder = WEIR_SOURCE_DIR "/../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs ../shared/data/stories260k";
  const auto device = CreateCpuDevice(1);
  absl::StatusOr<LoadedModel> model = LoadModel(folder, *device, {});
  ASSERT_TRUE(model.ok());
  const auto ids = model->tokenizer->Encode("Once upon a time", {.add_special_tokens = true});
  ASSERT_TRUE(ids.ok());
  std::vector<ServedModel> models;
  models.push_back(MakeServedModel(*std::move(model), {.slots = 4, .kv_blocks = 64}));
  ServerFixture fixture(std::move(models));
  v1::GenerateRequest text = GreedyRequest({}, 40);
  text.mutable_prompt()->set_text("Once upon a time");
  EXPECT_EQ(Generate(fixture.generation(), text).token_ids,
            Generate(fixture.generation(), GreedyRequest(*ids, 40)).token_ids);
}

}  // namespace
}  // namespace weir::testing
