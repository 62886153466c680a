// Splitting into words. Expected words come from the reference library.
#include "model/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<std::string> WordsOf(const nlohmann::json& json, const std::string& text) {
  const auto step = PreTokenizer::FromJson(json);
  EXPECT_TRUE(step.ok()) << step.status();
  Words words{text, {{0, text.size(), true}}};
  if (!step.ok() || !(*step)->Apply(EncodeContext(), &words).ok()) return {"failed"};
  std::vector<std::string> out;
  for (const WordSpan& span : words.spans)
    out.push_back(words.text.substr(span.begin, span.end - span.begin));
  return out;
}

nlohmann::json Split(const nlohmann::json& pattern, const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

nlohmann::json Tok01File() {
  nlohmann::json file =
      SmallFile(ByteAlphabet({"12", "123", "45", "456", "50", "x1", ",,"}),
                {{"1", "2"}, {"12", "3"}, {"4", "5"}, {"45", "6"}, {"5", "0"}, {"x", "1"}, {",", ","}});
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Punctuation"}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}},
                             {{"type", "Digits"}, {"individual_digits", false}},
                             Split({{"Regex", "[0-9][0-9][0-9]"}}, "Isolated")}}};
  return file;
}

TEST(PreTokenizer, TOK_01_EveryStepInFileOrder) {
  nlohmann::json file = Tok01File();
  const auto tokenizer = MustLoad(file);
  EXPECT_THAT(Encoded(*tokenizer, "1234567"), ElementsAre(257, 259, 55));
  EXPECT_THAT(Encoded(*tokenizer, "a,,b"), ElementsAre(97, 44, 44, 98));
  EXPECT_THAT(Encoded(*tokenizer, "x12.50"), ElementsAre(120, 256, 46, 260));
  EXPECT_THAT(Encoded(*tokenizer, "é 456 123"), ElementsAre(195, 169, 32, 259, 32, 257));
  file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Contiguous";
  EXPECT_THAT(Encoded(*MustLoad(file), "a,,b"), ElementsAre(97, 262, 98));
}

TEST(PreTokenizer, TOK_01_UnknownStepsAreLoadErrors) {
  nlohmann::json file = Tok01File();
  file["pre_tokenizer"]["pretokenizers"].push_back({{"type", "UnicodeScripts"}});
  EXPECT_THAT(LoadError(file), HasSubstr("pre_tokenizer.pretokenizers[4]: kind \"UnicodeScripts\""));
  file["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  EXPECT_THAT(LoadError(file), HasSubstr("BertPreTokenizer"));
  file["pre_tokenizer"] = Split({{"Regex", "("}}, "Isolated");
  EXPECT_THAT(LoadError(file), HasSubstr("pre_tokenizer"));
  file["pre_tokenizer"] = Split({{"String", "a"}}, "Sideways");
  EXPECT_THAT(LoadError(file), HasSubstr("Sideways"));
}

struct BehaviorCase {
  const char* behavior;
  bool invert;
  std::vector<std::string> words;
};

TEST(PreTokenizer, SplitBehaviors) {
  const std::vector<BehaviorCase> cases = {{"Isolated", false, {"-", "-", "a", "-", "-", "b", "-", "c", "-"}},
                                           {"Isolated", true, {"-", "-", "a", "-", "-", "b", "-", "c", "-"}},
                                           {"Removed", false, {"a", "b", "c"}},
                                           {"Removed", true, {"-", "-", "-", "-", "-", "-"}},
                                           {"MergedWithPrevious", false, {"-", "-", "a-", "-", "b-", "c-"}},
                                           {"MergedWithPrevious", true, {"-", "-a", "-", "-b", "-c", "-"}},
                                           {"MergedWithNext", false, {"-", "-a", "-", "-b", "-c", "-"}},
                                           {"MergedWithNext", true, {"-", "-", "a-", "-", "b-", "c-"}},
                                           {"Contiguous", false, {"--", "a", "--", "b", "-", "c", "-"}},
                                           {"Contiguous", true, {"--", "a", "--", "b", "-", "c", "-"}}};
  for (const BehaviorCase& one : cases) {
    EXPECT_THAT(WordsOf(Split({{"String", "-"}}, one.behavior, one.invert), "--a--b-c-"),
                ElementsAreArray(one.words))
        << one.behavior << one.invert;
  }
  EXPECT_THAT(WordsOf(Split({{"Regex", "-+|(?=b)"}}, "MergedWithPrevious", true), "--a--b-c-"),
              ElementsAre("--a", "--b", "-c", "-"));
}

TEST(PreTokenizer, ByteLevelPrefixAndPattern) {
  const nlohmann::json plain = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_THAT(WordsOf(plain, "it's  12 é!\n"), ElementsAre("it", "'s", "Ġ", "Ġ12", "ĠÃ©", "!", "Ċ"));
  const nlohmann::json prefixed = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  EXPECT_THAT(WordsOf(prefixed, "a b"), ElementsAre("ĠaĠb"));
  EXPECT_THAT(WordsOf(prefixed, " a"), ElementsAre("Ġa"));
}

TEST(PreTokenizer, DigitsPunctuationAndWhiteSpace) {
  EXPECT_THAT(WordsOf({{"type", "Digits"}}, "a12½b"), ElementsAre("a", "12½", "b"));
  EXPECT_THAT(WordsOf({{"type", "Digits"}, {"individual_digits", true}}, "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(WordsOf({{"type", "Punctuation"}}, "a$¿b.."), ElementsAre("a", "$", "¿", "b", ".", "."));
  EXPECT_THAT(WordsOf({{"type", "Whitespace"}}, "Hey  you?! _x\u200Dy"),
              ElementsAre("Hey", "you", "?!", "_x\u200Dy"));
  EXPECT_THAT(WordsOf({{"type", "WhitespaceSplit"}}, " a,b\u3000c\n"), ElementsAre("a,b", "c"));
}

nlohmann::json MetaspaceFile(const nlohmann::json& fields) {
  nlohmann::json file = SmallFile({"a", "b", "▁", "▁a", "▁b", "<s>"}, {{"▁", "a"}, {"▁", "b"}});
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
  file["pre_tokenizer"].update(fields);
  file["decoder"] = file["pre_tokenizer"];
  file["added_tokens"] = {Added(5, "<s>", true)};
  return file;
}

std::vector<std::string> MetaspaceTokens(const nlohmann::json& fields, std::string_view text) {
  Tokenizer::EncodeOptions options;
  options.parse_special = true;
  return Tokens(*MustLoad(MetaspaceFile(fields)), text, options);
}

TEST(PreTokenizer, TOK_07_AlwaysFirstAndNever) {
  const nlohmann::json always = {{"prepend_scheme", "always"}};
  const nlohmann::json first = {{"prepend_scheme", "first"}};
  const nlohmann::json never = {{"prepend_scheme", "never"}};
  for (const nlohmann::json& fields : {always, nlohmann::json{{"add_prefix_space", true}}}) {
    EXPECT_THAT(MetaspaceTokens(fields, "a<s>b"), ElementsAre("▁a", "<s>", "▁b"));
    EXPECT_THAT(MetaspaceTokens(fields, "<s>b"), ElementsAre("<s>", "▁b"));
  }
  EXPECT_THAT(MetaspaceTokens(first, "a<s>b"), ElementsAre("▁a", "<s>", "b"));
  EXPECT_THAT(MetaspaceTokens(first, "<s>b"), ElementsAre("<s>", "b"));
  EXPECT_THAT(MetaspaceTokens(first, " a  b"), ElementsAre("▁a", "▁", "▁b"));
  EXPECT_THAT(MetaspaceTokens(never, "a<s>b"), ElementsAre("a", "<s>", "b"));
  EXPECT_THAT(MetaspaceTokens(never, "<s>b"), ElementsAre("<s>", "b"));
  EXPECT_THAT(LoadError(MetaspaceFile({{"add_prefix_space", false}, {"prepend_scheme", "first"}})),
              HasSubstr("contradicts"));
  EXPECT_THAT(LoadError(MetaspaceFile({{"prepend_scheme", "often"}})), HasSubstr("often"));
}

TEST(PreTokenizer, TOK_07_ContinuationIsNotTheStart) {
  Tokenizer::EncodeOptions options;
  options.continuation = true;
  options.parse_special = true;
  for (const char* scheme : {"always", "first", "never"}) {
    const auto tokenizer = MustLoad(MetaspaceFile({{"prepend_scheme", scheme}}));
    EXPECT_THAT(Tokens(*tokenizer, "b", options), ElementsAre("b")) << scheme;
    EXPECT_THAT(Tokens(*tokenizer, " b", options), ElementsAre("▁b")) << scheme;
  }
  // After a special token inside the text, the file's rule holds again.
  const auto always = MustLoad(MetaspaceFile({{"prepend_scheme", "always"}}));
  EXPECT_THAT(Tokens(*always, "a<s>b", options), ElementsAre("a", "<s>", "▁b"));
}

TEST(PreTokenizer, TOK_07_FirstMeansTheVeryFirstCharacter) {
  nlohmann::json file = MetaspaceFile({{"prepend_scheme", "first"}});
  file["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  EXPECT_THAT(Tokens(*MustLoad(file), "b"), ElementsAre("▁b"));
  EXPECT_THAT(Tokens(*MustLoad(file), " b"), ElementsAre("b"));
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "^a+"}}}, {"content", "b"}};
  EXPECT_THAT(Tokens(*MustLoad(file), "ab"), ElementsAre("▁b", "b"));
  EXPECT_THAT(Tokens(*MustLoad(file), "aab"), ElementsAre("b", "b"));
}

}  // namespace
}  // namespace weir
