// The split patterns of published families against Hugging Face's `tokenizers`:
// tests/data/tokenizer_families.py made the file.
#include <fstream>

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

class Families : public testing::TestWithParam<const char*> {};

TEST_P(Families, GivesTheIdsOfTheReferenceLibrary) {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/data/tokenizer_families.json");
  ASSERT_TRUE(file.good());
  const nlohmann::json family = nlohmann::json::parse(file).at(GetParam());
  const auto tokenizer = MustLoad(family.at("tokenizer"));
  ASSERT_NE(tokenizer, nullptr);
  const bool normalizes = !family.at("tokenizer").at("normalizer").is_null();
  int merged = 0;
  for (const nlohmann::json& one : family.at("cases")) {
    const std::string text = one.at("text");
    const std::vector<int32_t> expected = one.at("ids");
    EXPECT_EQ(Encoded(*tokenizer, text), expected) << text;
    if (!normalizes) EXPECT_EQ(tokenizer->Decode(expected), text);
    merged += expected.size() < text.size();
  }
  EXPECT_GT(merged, 50) << "the cases use merges";
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Families,
                         testing::Values("gpt2", "llama3", "qwen2", "starcoder", "falcon"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weir
