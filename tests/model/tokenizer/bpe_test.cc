// The BPE model: merges, unknown characters, whole words, cost.
#include "model/tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

nlohmann::json WithMerges(const nlohmann::json& merges) {
  nlohmann::json file = SmallFile({"a", "b", "c", "ab", "bc", "abc", "a b"});
  file["model"]["merges"] = merges;
  return file;
}

std::unique_ptr<Bpe> MustRead(const nlohmann::json& file) {
  auto bpe = Bpe::FromJson(file["model"]);
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return bpe.ok() ? *std::move(bpe) : nullptr;
}

TEST(Bpe, TOK_05_MergesAsTextOrPairsAreTheSame) {
  const auto text = MustLoad(WithMerges({"a b", "ab c"}));
  const auto pairs = MustLoad(WithMerges(nlohmann::json::parse(R"([["a", "b"], ["ab", "c"]])")));
  for (const char* input : {"abc", "aab", "abcab"}) EXPECT_EQ(Encoded(*text, input), Encoded(*pairs, input));
  EXPECT_THAT(Encoded(*text, "abcab"), ElementsAre(5, 3));
  EXPECT_EQ(text->fingerprint(), pairs->fingerprint());
}

TEST(Bpe, TOK_05_PairsMayHoldSpaces) {
  nlohmann::json file = SmallFile({"a", "b", " ", "a ", "a b"}, {{"a", " "}, {"a ", "b"}});
  EXPECT_THAT(Encoded(*MustLoad(file), "a ba"), ElementsAre(4, 0));
}

TEST(Bpe, TOK_05_BrokenMergesAreLoadErrorsWithTheirIndex) {
  EXPECT_THAT(LoadError(WithMerges({"a b", "b a"})), HasSubstr("merges[1]: \"ba\" is not in the vocabulary"));
  EXPECT_THAT(LoadError(WithMerges({"a b", "ab c", "x a"})), HasSubstr("merges[2]: \"x\""));
  EXPECT_THAT(LoadError(WithMerges({"a b c"})), HasSubstr("merges[0]"));
  EXPECT_THAT(LoadError(WithMerges({"ab"})), HasSubstr("merges[0]"));
  EXPECT_THAT(LoadError(WithMerges({nlohmann::json::array({"a", "b", "c"})})), HasSubstr("merges[0]"));
}

TEST(Bpe, TOK_06_WholeWordsOnlyWhereMergesAreIgnored) {
  nlohmann::json file = SmallFile({"a", "b", "c", "ab"}, {{"a", "b"}});
  file["model"]["vocab"]["abc"] = 900;
  EXPECT_THAT(Encoded(*MustLoad(file), "abc"), ElementsAre(3, 2));
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(Encoded(*MustLoad(file), "abc"), ElementsAre(900));
  EXPECT_EQ(MustLoad(file)->vocab_size(), 901);
}

// Values from the reference: an entry that waits for a pair also serves another pair with the same result.
TEST(Bpe, SeveralWaysToOneTokenMergeInTheReferenceOrder) {
  const auto first = MustLoad(
      SmallFile({"a", "b", "c", "ab", "bc", "abc", "aa", "aaa", "aaaa"},
                {{"b", "c"}, {"a", "bc"}, {"a", "b"}, {"ab", "c"}, {"a", "a"}, {"aa", "a"}, {"aa", "aa"}}));
  EXPECT_THAT(Encoded(*first, "ababcabcbc"), ElementsAre(3, 5, 5, 4));
  EXPECT_THAT(Encoded(*first, "aaaaaaa"), ElementsAre(8, 7));
  EXPECT_THAT(Encoded(*first, "aabcaab"), ElementsAre(0, 5, 0, 3));
  EXPECT_THAT(Encoded(*first, "abcabcaaabcaaaabc"), ElementsAre(5, 5, 6, 5, 7, 5));
  const auto second =
      MustLoad(SmallFile({"a", "b", "c", "d", "ab", "bc", "abc", "cd", "bcd", "abcd"}, {{"a", "b"},
                                                                                        {"c", "d"},
                                                                                        {"ab", "cd"},
                                                                                        {"b", "c"},
                                                                                        {"bc", "d"},
                                                                                        {"ab", "c"},
                                                                                        {"a", "bc"},
                                                                                        {"abc", "d"},
                                                                                        {"a", "bcd"}}));
  EXPECT_THAT(Encoded(*second, "bcdabcd"), ElementsAre(1, 7, 9));
  EXPECT_THAT(Encoded(*second, "cdabcabcd"), ElementsAre(7, 6, 9));
  EXPECT_THAT(Encoded(*second, "dabcbcd"), ElementsAre(3, 6, 1, 7));
}

TEST(Bpe, UnknownCharacters) {
  nlohmann::json file = SmallFile({"?", "a", "b", "ab", "<0xC3>", "<0xA9>", "<0x7A>"}, {{"a", "b"}});
  EXPECT_THAT(Encoded(*MustLoad(file), "zabz"), ElementsAre(3));
  file["model"]["unk_token"] = "?";
  EXPECT_THAT(Encoded(*MustLoad(file), "\u65E5\u672Cab"), ElementsAre(0, 0, 3));
  file["model"]["fuse_unk"] = true;
  EXPECT_THAT(Encoded(*MustLoad(file), "\u65E5\u672Cabz"), ElementsAre(0, 3, 0));
  file["model"]["fuse_unk"] = false;
  file["model"]["byte_fallback"] = true;
  EXPECT_THAT(Encoded(*MustLoad(file), "z\u65E5z\u00E9\u65E5\u65E5b"), ElementsAre(6, 6, 4, 5, 0, 0, 0, 2));
  file["model"]["unk_token"] = "not there";
  const auto missing = MustLoad(file);
  EXPECT_THAT(Encoded(*missing, "ab\u00E9"), ElementsAre(3, 4, 5));
  EXPECT_EQ(missing->Encode("x", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Bpe, UnsupportedModelsAreRefused) {
  nlohmann::json file = SmallFile({"a"});
  for (const char* type : {"WordPiece", "Unigram", "WordLevel"}) {
    file["model"]["type"] = type;
    EXPECT_THAT(LoadError(file), HasSubstr(type));
  }
  file = SmallFile({"a"});
  file["model"]["dropout"] = 0.1;
  EXPECT_THAT(LoadError(file), HasSubstr("dropout"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    file = SmallFile({"a"});
    file["model"][key] = "##";
    EXPECT_THAT(LoadError(file), HasSubstr(key));
    file["model"][key] = "";
    EXPECT_NE(MustLoad(file), nullptr);
  }
}

TEST(Bpe, BadIdsAreRefused) {
  nlohmann::json file = SmallFile({"a", "b"});
  for (const nlohmann::json& bad :
       {nlohmann::json(-1), nlohmann::json(1.5), nlohmann::json("1"), nlohmann::json(int64_t{1} << 40)}) {
    file["model"]["vocab"]["b"] = bad;
    EXPECT_THAT(LoadError(file), HasSubstr("vocab"));
  }
  file["model"]["vocab"]["b"] = 0;
  EXPECT_THAT(LoadError(file), HasSubstr("id 0 belongs to"));
}

// Runs without a split point: how much work each takes, counted and not timed.
class LongWord : public testing::TestWithParam<std::string> {
 protected:
  static uint64_t Work(const Bpe& bpe, const std::string& unit, size_t characters) {
    std::string word;
    for (size_t i = 0; i < characters; ++i) word += unit.substr(i % unit.size(), 1);
    BpeScratch scratch;
    std::vector<int32_t> ids;
    EXPECT_TRUE(bpe.Encode(word, &scratch, &ids).ok());
    EXPECT_FALSE(ids.empty());
    return scratch.operations;
  }
};

TEST_P(LongWord, TOK_11_WorkIsLinearInQueueEntries) {
  std::vector<std::string> tokens = {"a", "b", "_", "x"};
  std::vector<std::pair<std::string, std::string>> merges;
  for (const std::string unit : {"a", "_", "ab"}) {
    std::string whole = unit;
    if (unit.size() == 2) {
      merges.push_back({"a", "b"});
      tokens.push_back(unit);
    }
    for (int i = 0; i < 8; ++i) {
      merges.push_back({whole, whole});
      whole += whole;
      tokens.push_back(whole);
    }
  }
  const auto bpe = MustRead(SmallFile(tokens, merges));
  uint64_t before = 0;
  for (const size_t n : {25'000, 50'000, 100'000}) {
    const uint64_t work = Work(*bpe, GetParam(), n);
    // Each symbol is looked up once, each merge (fewer than n) brings two lookups, each found pair one entry.
    EXPECT_LE(work, 6 * n);
    if (before > 0) {
      EXPECT_LT(static_cast<double>(work) / static_cast<double>(before), 2.5);
    }
    before = work;
  }
}

INSTANTIATE_TEST_SUITE_P(Bpe, LongWord, testing::Values("a", "_", "ab", "aab_", "x"));

TEST(Bpe, TOK_11_CancelIsObeyedInsideOneWord) {
  const auto bpe = MustRead(SmallFile({"a", "aa"}, {{"a", "a"}}));
  const std::atomic<bool> cancelled{true};
  BpeScratch scratch;
  scratch.cancelled = &cancelled;
  std::vector<int32_t> ids;
  EXPECT_EQ(bpe->Encode(std::string(100'000, 'a'), &scratch, &ids).code(), absl::StatusCode::kCancelled);
  EXPECT_LT(scratch.operations, 10'000u);
}

}  // namespace
}  // namespace weir
