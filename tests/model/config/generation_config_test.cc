#include "model/config/generation_config.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::weir::testing::TempDir;

TEST(GenerationDefaults, ReadsGenerationConfig) {
  TempDir dir;
  dir.Write(
      "generation_config.json",
      R"({"_from_model_config":true,"bos_token_id":1,"eos_token_id":[7,2,7],"temperature":0.6,"top_p":0.9,)"
      R"("min_p":0.05,"top_k":-1,"repetition_penalty":1.1,"do_sample":true,"transformers_version":"4.40"})");
  dir.Write("config.json", R"({"bos_token_id":50,"eos_token_id":51})");
  const absl::StatusOr<GenerationDefaults> defaults = GenerationDefaults::Load(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_token_id, 1);
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2, 7));
  EXPECT_EQ(defaults->temperature, 0.6f);
  EXPECT_EQ(defaults->top_p, 0.9f);
  EXPECT_EQ(defaults->min_p, 0.05f);
  EXPECT_EQ(defaults->top_k, 0);
  EXPECT_EQ(defaults->repetition_penalty, 1.1f);
  EXPECT_EQ(defaults->do_sample, true);
}

TEST(GenerationDefaults, SpecialIdsComeFromConfigWhereNotMentioned) {
  TempDir dir;
  dir.Write("config.json", R"({"bos_token_id":1,"eos_token_id":2,"temperature":3.0})");
  absl::StatusOr<GenerationDefaults> defaults = GenerationDefaults::Load(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_token_id, 1);
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2));
  EXPECT_EQ(defaults->temperature, std::nullopt);  // sampling belongs to generation_config.json

  dir.Write("generation_config.json", R"({"bos_token_id":null})");
  defaults = GenerationDefaults::Load(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_token_id, std::nullopt);
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2));
}

TEST(GenerationDefaults, AFolderMaySayNothing) {
  TempDir dir;
  absl::StatusOr<GenerationDefaults> defaults = GenerationDefaults::Load(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_token_id, std::nullopt);
  EXPECT_THAT(defaults->eos_token_ids, IsEmpty());
  dir.Write("config.json", R"({"eos_token_id":null})");
  defaults = GenerationDefaults::Load(dir.path());
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_THAT(defaults->eos_token_ids, IsEmpty());
}

TEST(GenerationDefaults, BadValuesNameTheFileAndKey) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"temperature":-0.5})", "temperature"},
      {R"({"temperature":NaN})", "temperature"},
      {R"({"temperature":Infinity})", "temperature"},
      {R"({"top_p":1.5})", "top_p"},
      {R"({"min_p":-1})", "min_p"},
      {R"({"top_k":2.5})", "top_k"},
      {R"({"top_k":-2})", "top_k"},
      {R"({"repetition_penalty":0})", "repetition_penalty"},
      {R"({"do_sample":1})", "do_sample"},
      {R"({"eos_token_id":"</s>"})", "eos_token_id"},
      {R"({"eos_token_id":[1,-2]})", "eos_token_id[1]"},
      {R"({"eos_token_id":2147483648})", "eos_token_id"},
      {R"({"bos_token_id":[1,2]})", "bos_token_id"},
      {R"({"eos_token_id":true})", "eos_token_id"},
  };
  for (const auto& [text, key] : cases) {
    TempDir dir;
    dir.Write("generation_config.json", text);
    const absl::Status status = GenerationDefaults::Load(dir.path()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(dir.path()), HasSubstr(std::string(key))))
        << text;
  }
}

TEST(GenerationDefaults, ABrokenFileIsNotTakenForAnAbsentOne) {
  TempDir dir;
  dir.Write("config.json", R"({"eos_token_id":2})");
  dir.Write("generation_config.json", "{");
  EXPECT_TRUE(absl::IsInvalidArgument(GenerationDefaults::Load(dir.path()).status()));
}

TEST(GenerationDefaults, ATrainedModelLoads) {
  const std::string folder = std::string(WEIR_SOURCE_DIR) + "/../shared/data/stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  const absl::StatusOr<GenerationDefaults> defaults = GenerationDefaults::Load(folder);
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->bos_token_id, 1);
  EXPECT_THAT(defaults->eos_token_ids, ElementsAre(2));
}

}  // namespace
}  // namespace weir
