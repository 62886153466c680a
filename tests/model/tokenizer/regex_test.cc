// Patterns of real models, cut as Oniguruma cuts them (the right values come from the reference library).
#include "model/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The parts of `text` between and at the matches of `pattern`.
std::vector<std::string> Cut(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<RegexPart> parts;
  if (!regex.ok() || !regex->Split(text, nullptr, &parts).ok()) return {"failed"};
  std::vector<std::string> out;
  for (const RegexPart& part : parts) {
    if (part.begin < part.end) out.emplace_back(text.substr(part.begin, part.end - part.begin));
  }
  return out;
}

std::string CompileError(std::string_view pattern) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_FALSE(regex.ok()) << pattern;
  return std::string(regex.status().message());
}

TEST(Regex, SplitCoversTheTextAndMarksMatches) {
  const auto regex = Regex::Compile("b+");
  ASSERT_TRUE(regex.ok());
  std::vector<RegexPart> parts;
  ASSERT_TRUE(regex->Split("abbc", nullptr, &parts).ok());
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_FALSE(parts[0].is_match);
  EXPECT_TRUE(parts[1].is_match);
  EXPECT_EQ(parts[1].begin, 1u);
  EXPECT_EQ(parts[1].end, 3u);
  ASSERT_TRUE(regex->Split("", nullptr, &parts).ok());
  EXPECT_TRUE(parts.empty());
}

TEST(Regex, LiteralsAreNotPatterns) {
  const auto regex = Regex::Literal("a.");
  ASSERT_TRUE(regex.ok());
  std::vector<RegexPart> parts;
  ASSERT_TRUE(regex->Split("aba.a.", nullptr, &parts).ok());
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].begin, 2u);
  EXPECT_EQ(parts[2].begin, 4u);
}

TEST(Regex, CountsRepeatAndAreNotPossessive) {
  EXPECT_THAT(Cut(R"(\p{N}{1,3}+)", "1234567a"), ElementsAre("1234567", "a"));
  EXPECT_THAT(Cut("a{1,2}*", "aaaab"), ElementsAre("aaaa", "b"));
  EXPECT_THAT(Cut("a{2}?", "aaab"), ElementsAre("aa", "a", "b"));
  EXPECT_THAT(Cut("a{,2}", "aaab"), ElementsAre("aa", "a", "b"));
  EXPECT_THAT(Cut("a{1,2}?", "aaa"), ElementsAre("a", "a", "a"));
  EXPECT_THAT(Cut("a{x", "ba{x"), ElementsAre("b", "a{x"));
  EXPECT_THAT(Cut("a++b", "aab"), ElementsAre("aab"));
}

TEST(Regex, InlineOptions) {
  EXPECT_THAT(Cut("x(?i)b|c", "xbxBCc"), ElementsAre("xb", "xB", "Cc"));
  EXPECT_THAT(Cut("(?i:'s)", "'\u017F 'S"), ElementsAre("'\u017F", " ", "'S"));
  EXPECT_THAT(Cut("(?m).+", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(Cut(".+", "a\nb"), ElementsAre("a", "\n", "b"));
}

TEST(Regex, CharacterClassesMeanWhatOnigurumaSays) {
  EXPECT_THAT(Cut(R"(\s)", "a\u180Eb\u0085c\u00A0d\u200Be"),
              ElementsAre("a\u180Eb", "\u0085", "c", "\u00A0", "d\u200Be"));
  EXPECT_THAT(Cut(R"(\h+)", "12 fg"), ElementsAre("12", " ", "f", "g"));
  EXPECT_THAT(Cut(R"(\w+)", "a\u0301\u200Db_c\u203F\u0661"),
              ElementsAre("a\u0301", "\u200D", "b_c\u203F\u0661"));
  EXPECT_THAT(Cut(R"([^\W\d]+)", "a1b_"), ElementsAre("a", "1", "b_"));
  EXPECT_THAT(Cut("[a-z&&[^aeiou]]+", "hello"), ElementsAre("h", "e", "ll", "o"));
  EXPECT_THAT(Cut(R"(\bfoo\b)", "foo \u00E9foo foo\u0301 foo"),
              ElementsAre("foo", " \u00E9foo foo\u0301 ", "foo"));
  EXPECT_THAT(Cut(R"(\u00e9)", "a\u00E9b"), ElementsAre("a", "\u00E9", "b"));
  EXPECT_THAT(Cut(R"([\w-]+)", "a-b c"), ElementsAre("a-b", " ", "c"));
  EXPECT_THAT(Cut("[]a]", "a]"), ElementsAre("a", "]"));
  EXPECT_THAT(Cut("[a[bc]d]+", "abcde["), ElementsAre("abcd", "e["));
  EXPECT_THAT(Cut(R"(\p{Han}+)", "\u65E5\u3002"), ElementsAre("\u65E5", "\u3002"));
  EXPECT_THAT(Cut(R"(\v)",
                  "a\x0B"
                  "b\nc"),
              ElementsAre("a", "\x0B", "b\nc"));
}

TEST(Regex, LineAnchorsAndEmptyMatches) {
  EXPECT_THAT(Cut("^b", "a\nb"), ElementsAre("a\n", "b"));
  EXPECT_THAT(Cut(R"(\s+$)", "a \n b  "), ElementsAre("a", " ", "\n b", "  "));
  EXPECT_THAT(Cut("(?=b)", "abb"), ElementsAre("a", "b", "b"));
  EXPECT_THAT(Cut("x*", "axb"), ElementsAre("a", "x", "b"));
}

TEST(Regex, BloomNestedClass) {
  EXPECT_THAT(Cut(R"( ?[^(\s|[.,!?…。，、।۔،])]+)", "a,b (c) d.e"),
              ElementsAre("a", ",", "b", " (", "c", ")", " d", ".", "e"));
}

TEST(Regex, Llama3Pattern) {
  constexpr char kPattern[] =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_THAT(Cut(kPattern, "I'LL  pay 12345$!\n\n  x"),
              ElementsAre("I", "'LL", " ", " pay", " ", "123", "45", "$!\n\n", " ", " x"));
}

TEST(Regex, WhatHasNoCounterpartIsRefused) {
  for (const char* pattern :
       {R"(\G)", R"(\K)", R"(\g<1>)", R"(\k<n>)", "(?~a)", "(*FAIL)", R"(\xe9)", R"([a-\d])", "(?x: a)",
        "[[:nothing:]]", R"(\Qa\E)", R"(\p{NoSuchThing})", "a)", "(a", "[a", "*a"}) {
    EXPECT_THAT(CompileError(pattern), HasSubstr("pattern")) << pattern;
  }
  EXPECT_THAT(CompileError(std::string(100, '(') + std::string(100, ')')), HasSubstr("deep"));
}

TEST(Regex, HostileBacktrackingEndsAsAnError) {
  const auto regex = Regex::Compile("(a|aa)+$");
  ASSERT_TRUE(regex.ok());
  std::vector<RegexPart> parts;
  const absl::Status status = regex->Split(std::string(60, 'a') + "b", nullptr, &parts);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("too costly"));
}

TEST(Regex, LongRunsOfGroupsDoNotOverflow) {
  const auto regex = Regex::Compile("(?:ab|c)+");
  ASSERT_TRUE(regex.ok());
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "ab";
  std::vector<RegexPart> parts;
  // Matched whole or refused, but no crash and no half result.
  const absl::Status status = regex->Split(text, nullptr, &parts);
  if (status.ok()) {
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].end, text.size());
  } else {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Regex, MatchesFarFromTheStartAreFound) {
  const auto regex = Regex::Compile("b");
  ASSERT_TRUE(regex.ok());
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "\u65E5";
  text += "b";
  std::vector<RegexPart> parts;
  ASSERT_TRUE(regex->Split(text, nullptr, &parts).ok());
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].begin, 60'000u);
}

TEST(Regex, CancelStopsASearch) {
  const auto regex = Regex::Compile("b");
  ASSERT_TRUE(regex.ok());
  const std::atomic<bool> cancelled{true};
  std::vector<RegexPart> parts;
  EXPECT_EQ(regex->Split("aaa", &cancelled, &parts).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace weir
