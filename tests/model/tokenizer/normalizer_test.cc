// Rewriting text before it is split.
#include "model/tokenizer/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::HasSubstr;

std::string Normalized(const nlohmann::json& json, std::string text, bool continuation = false) {
  const auto normalizer = Normalizer::FromJson(json);
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  if (!normalizer.ok()) return "failed";
  EncodeContext context;
  context.continuation = continuation;
  bool at_start = true;
  const absl::Status status = (*normalizer)->Apply(context, &text, &at_start);
  EXPECT_TRUE(status.ok()) << status;
  return text;
}

const nlohmann::json kNfc = {{"type", "NFC"}};
const nlohmann::json kNfd = {{"type", "NFD"}};
const nlohmann::json kNfkc = {{"type", "NFKC"}};
const nlohmann::json kNfkd = {{"type", "NFKD"}};

TEST(Normalizer, TOK_16_Composition) {
  EXPECT_EQ(Normalized(kNfc, "e\u0301"), "\u00E9");
  EXPECT_EQ(Normalized(kNfc, "\u212B"), "\u00C5");
  EXPECT_EQ(Normalized(kNfc, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(Normalized(kNfc, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Normalized(kNfc, "\uFB01\u2460"), "\uFB01\u2460");
  EXPECT_EQ(Normalized(kNfkc, "\uFB01"), "fi");
  EXPECT_EQ(Normalized(kNfkc, "\u2460"), "1");
  EXPECT_EQ(Normalized(kNfkc, "\u1E9B\u0323"), "\u1E69");
}

TEST(Normalizer, TOK_16_Decomposition) {
  EXPECT_EQ(Normalized(kNfd, "\u00E9"), "e\u0301");
  EXPECT_EQ(Normalized(kNfd, "\uAC01"), "\u1100\u1161\u11A8");
  EXPECT_EQ(Normalized(kNfd, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Normalized(kNfd, "\uFB01"), "\uFB01");
  EXPECT_EQ(Normalized(kNfkd, "\u1E9B\u0323"), "s\u0323\u0307");
  EXPECT_EQ(Normalized(kNfkd, "\uFDFA").size(), 33u);  // the longest decomposition: 18 characters
}

TEST(Normalizer, LongRunsOfMarksAreOrderedByASort) {
  // A bubble sort of this run would take ten billion steps.
  std::string text = "a";
  std::string below;
  std::string above;
  for (int i = 0; i < 100'000; ++i) {
    text += "\u0301\u0323";
    below += "\u0323";
    above += "\u0301";
  }
  EXPECT_EQ(Normalized(kNfd, text), "a" + below + above);
}

TEST(Normalizer, AsciiAndNulPassUnchanged) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(Normalized(kNfkc, text), text);
  EXPECT_EQ(Normalized(kNfc, text + "e\u0301"), text + "\u00E9");
}

TEST(Normalizer, Lowercase) {
  EXPECT_EQ(Normalized({{"type", "Lowercase"}}, "ABC\u00C9\u0130\u03A3"), "abc\u00E9i\u0307\u03C3");
}

TEST(Normalizer, PrependStripReplaceAndSequence) {
  EXPECT_EQ(Normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(Normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(Normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " \u3000a b\n"),
            "a b");
  EXPECT_EQ(Normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a "), " a");
  EXPECT_EQ(Normalized({{"type", "Strip"}}, "  \n"), "");
  const nlohmann::json spaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const nlohmann::json runs = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", "$1"}};
  EXPECT_EQ(Normalized(spaces, "a  b"), "a\u2581\u2581b");
  EXPECT_EQ(Normalized(runs, "a \n b"), "a$1b");
  EXPECT_EQ(
      Normalized({{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", " "}}, spaces}}},
                 "a b"),
      "\u2581a\u2581b");
}

TEST(Normalizer, ContinuationKeepsTheStart) {
  EXPECT_EQ(Normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a", true), "a");
  EXPECT_EQ(Normalized({{"type", "Strip"}}, " a ", true), " a");
}

TEST(Normalizer, UnknownKindsAreRefused) {
  nlohmann::json file = SmallFile({"a"});
  for (const char* kind : {"BertNormalizer", "Precompiled", "StripAccents", "Nmt", "ByteLevel"}) {
    file["normalizer"] = {{"type", kind}};
    EXPECT_THAT(LoadError(file), HasSubstr(kind));
  }
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Nope"}}}}};
  EXPECT_THAT(LoadError(file), HasSubstr("normalizer.normalizers[0]: kind \"Nope\""));
  nlohmann::json nested = kNfc;
  for (int i = 0; i < 100; ++i)
    nested = {{"type", "Sequence"}, {"normalizers", nlohmann::json::array({nested})}};
  file["normalizer"] = nested;
  EXPECT_THAT(LoadError(file), HasSubstr("too deep"));
}

}  // namespace
}  // namespace weir
