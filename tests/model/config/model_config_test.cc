#include "model/config/model_config.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ConfigReader Reader(std::string_view text) { return ConfigReader::Parse(text, "config.json").value(); }

TEST(ModelConfig, ArchitectureComesFromTheListOrTheModelType) {
  EXPECT_EQ(Architecture(Reader(R"({"architectures":["A","B"],"model_type":"m"})")).value(), "A");
  EXPECT_EQ(Architecture(Reader(R"({"architectures":[],"model_type":"m"})")).value(), "m");
  EXPECT_EQ(Architecture(Reader(R"({"architectures":null,"model_type":"m"})")).value(), "m");
  EXPECT_EQ(Architecture(Reader(R"({"model_type":"m"})")).value(), "m");
}

TEST(ModelConfig, AnUnnamedArchitectureIsAnError) {
  const absl::Status status = Architecture(Reader("{}")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("config.json"), HasSubstr("architectures"), HasSubstr("model_type")));
  EXPECT_FALSE(Architecture(Reader(R"({"architectures":"A"})")).ok());
  EXPECT_FALSE(Architecture(Reader(R"({"architectures":[1]})")).ok());
}

// The authors' mamba_ssm names none; its keys tell it.
TEST(ModelConfig, ALayoutWithoutAnArchitectureIsKnownByItsKeys) {
  EXPECT_EQ(Architecture(Reader(R"({"d_model":8,"n_layer":2})")).value(), "mamba_ssm Mamba1");
  EXPECT_EQ(Architecture(Reader(R"({"d_model":8,"n_layer":2,"ssm_cfg":{}})")).value(), "mamba_ssm Mamba1");
  EXPECT_EQ(Architecture(Reader(R"({"d_model":8,"n_layer":2,"ssm_cfg":{"layer":"Mamba2"}})")).value(),
            "mamba_ssm Mamba2");
  EXPECT_FALSE(Architecture(Reader(R"({"d_model":8,"n_layer":2,"ssm_cfg":{"layer":2}})")).ok());
  EXPECT_FALSE(Architecture(Reader(R"({"d_model":8,"n_layer":2,"ssm_cfg":"Mamba2"})")).ok());
  EXPECT_FALSE(Architecture(Reader(R"({"d_model":8})")).ok());
  // Hugging Face's conversions keep the authors' keys beside their own.
  EXPECT_EQ(Architecture(Reader(R"({"architectures":["A"],"d_model":8,"n_layer":2})")).value(), "A");
}

TEST(ModelConfig, LOD_09_TyingFallsBackToTheFamily) {
  EXPECT_TRUE(TieWordEmbeddings(Reader(R"({"tie_word_embeddings":true})"), false).value());
  EXPECT_FALSE(TieWordEmbeddings(Reader(R"({"tie_word_embeddings":false})"), true).value());
  EXPECT_TRUE(TieWordEmbeddings(Reader("{}"), true).value());
  EXPECT_FALSE(TieWordEmbeddings(Reader("{}"), false).value());
  EXPECT_FALSE(TieWordEmbeddings(Reader(R"({"tie_word_embeddings":"yes"})"), false).ok());
}

TEST(ModelConfig, TrainedModelsLoad) {
  const std::string data = std::string(WEIR_SOURCE_DIR) + "/../shared/data/";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << data << " is absent";
  const std::pair<std::string, std::string> cases[] = {{"stories260k", "LlamaForCausalLM"},
                                                       {"mamba-llamacpp", "MambaForCausalLM"},
                                                       {"mamba2-llamacpp", "Mamba2ForCausalLM"}};
  for (const auto& [folder, name] : cases) {
    const absl::StatusOr<ConfigReader> config = LoadModelConfig(data + folder);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(Architecture(*config).value(), name);
  }
}

}  // namespace
}  // namespace weir
