// The tokenizers under ../shared against ids that other programs recorded.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using Json = nlohmann::json;

std::filesystem::path Shared() { return std::filesystem::path(WEIR_SOURCE_DIR) / ".." / "shared" / "data"; }

Json ReadJson(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return Json::parse(text.str());
}

class RecordedCases : public testing::TestWithParam<const char*> {};

TEST_P(RecordedCases, EncodeAndDecodeAndPiecesAgree) {
  const auto folder = Shared() / "tokenizers" / GetParam();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json cases = ReadJson(folder / "cases.json");
  EXPECT_EQ(cases.size(), 46u);
  for (const Json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(Encoded(**tokenizer, text), ids) << text;
    EXPECT_EQ((*tokenizer)->Decode(ids), text);
    EXPECT_EQ(JoinedPieces(**tokenizer, ids), text);
  }
}

INSTANTIATE_TEST_SUITE_P(SharedFiles, RecordedCases, testing::Values("gpt2", "neox"),
                         [](const auto& param) { return std::string(param.param); });

TEST(SharedFiles, ByteLevelGivesAnyUtf8Back) {
  for (const char* name : {"gpt2", "neox"}) {
    const auto folder = Shared() / "tokenizers" / name;
    if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
    const auto tokenizer = Tokenizer::Load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    TextMaker maker(std::string(name) == "gpt2" ? TextMaker::kAnyCharacter : TextMaker::kAscii);
    for (int round = 0; round < 300; ++round) {
      const std::string text = maker.Make(200);
      const std::vector<int32_t> ids = Encoded(**tokenizer, text);
      ASSERT_EQ((*tokenizer)->Decode(ids), text);
      ASSERT_EQ(JoinedPieces(**tokenizer, ids), text);
    }
  }
}

TEST(SharedFiles, Stories260kTextAndIds) {
  const auto folder = Shared() / "stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Json expected = ReadJson(folder / "expected.json");
  const auto ids = expected["greedy_token_ids"].get<std::vector<int32_t>>();
  const auto text = expected["greedy_text"].get<std::string>();
  // The text goes one token further than the ids that were fed.
  Tokenizer::EncodeOptions options;
  options.add_special_tokens = true;
  const std::vector<int32_t> encoded = Encoded(**tokenizer, text, options);
  ASSERT_EQ(encoded.size(), ids.size() + 1);
  EXPECT_EQ(std::vector<int32_t>(encoded.begin(), encoded.end() - 1), ids);
  EXPECT_EQ((*tokenizer)->Decode(encoded), text);
  EXPECT_EQ(JoinedPieces(**tokenizer, encoded), text);
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  EXPECT_EQ((*tokenizer)->vocab_size(), 512);
}

TEST(SharedFiles, Stories260kContinuationJoinsText) {
  const auto folder = Shared() / "stories260k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::vector<int32_t> ids = Encoded(**tokenizer, "Once upon");
  Tokenizer::EncodeOptions options;
  options.continuation = true;
  for (const char* more : {" a time", "s", "  x"}) {
    const auto next = (*tokenizer)->Encode(more, options);
    ASSERT_TRUE(next.ok()) << next.status();
    ids.insert(ids.end(), next->begin(), next->end());
  }
  EXPECT_EQ((*tokenizer)->Decode(ids), "Once upon a times  x");
}

}  // namespace
}  // namespace weir
