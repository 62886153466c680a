// Decoding token by token. Expected texts come from the reference library.
#include "model/tokenizer/token_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::HasSubstr;

const nlohmann::json kReplace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
const nlohmann::json kByteFallback = {{"type", "ByteFallback"}};
const nlohmann::json kFuse = {{"type", "Fuse"}};
const nlohmann::json kStripFirst = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};

nlohmann::json Steps(const std::vector<nlohmann::json>& steps) {
  return {{"type", "Sequence"}, {"decoders", steps}};
}

nlohmann::json File(const nlohmann::json& decoder) {
  nlohmann::json file = SmallFile({"▁", "a", "▁a", "<0xC3>", "<0xA9>", "<0x20>", "▁▁b", "<s>"});
  file["added_tokens"] = {Added(7, "<s>", true)};
  file["decoder"] = decoder;
  return file;
}

struct DecodeCase {
  std::vector<int32_t> ids;
  std::string text;
  std::string with_special;
};

void ExpectDecodes(const nlohmann::json& decoder, const std::vector<DecodeCase>& cases) {
  const auto tokenizer = MustLoad(File(decoder));
  for (const DecodeCase& one : cases) {
    EXPECT_EQ(tokenizer->Decode(one.ids), one.text);
    EXPECT_EQ(JoinedPieces(*tokenizer, one.ids), one.text);
    EXPECT_EQ(tokenizer->Decode(one.ids, /*skip_special=*/false), one.with_special);
  }
}

TEST(TokenDecoder, LlamaSequence) {
  ExpectDecodes(Steps({kReplace, kByteFallback, kFuse, kStripFirst}),
                {{{2, 1, 2}, "aa a", "aa a"},
                 {{7, 2, 1}, "aa", "<s> aa"},
                 {{6, 6}, " b  b", " b  b"},
                 {{5, 1}, "a", "a"},
                 {{3, 4, 0, 3, 4}, "é é", "é é"},
                 {{0, 0, 1}, " a", " a"},
                 {{2, 7, 2, 99, 1}, "a aa", "a<s> aa"}});
}

TEST(TokenDecoder, NoneJoinsWithSpaces) {
  ExpectDecodes(nullptr, {{{2, 1, 2}, "▁a a ▁a", "▁a a ▁a"},
                          {{7, 2, 1}, "▁a a", "<s> ▁a a"},
                          {{7, 7, 99, 1}, "a", "<s> <s> a"}});
}

TEST(TokenDecoder, MetaspaceDropsTheMarksOfTheFirstToken) {
  const nlohmann::json always = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
  const nlohmann::json never = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "never"}};
  ExpectDecodes(always, {{{2, 1, 6}, "aa  b", "aa  b"}, {{6, 0, 2}, "b  a", "b  a"}});
  ExpectDecodes(never, {{{2, 1, 6}, " aa  b", " aa  b"}});
}

TEST(TokenDecoder, StripOfEachToken) {
  const nlohmann::json strip = {{"type", "Strip"}, {"content", "▁"}, {"start", 1}, {"stop", 1}};
  ExpectDecodes(strip, {{{2, 1, 6}, "aa▁b", "aa▁b"}, {{0, 0}, "", ""}});
}

TEST(TokenDecoder, HalfCharactersComeAsBytes) {
  const auto tokenizer = MustLoad(File(Steps({kReplace, kByteFallback, kFuse})));
  EXPECT_EQ(tokenizer->Piece(3, false), "\xC3");
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{1, 4}), "a\xA9");
}

TEST(TokenDecoder, ByteLevelKeepsTokensThatAreNotByteLevel) {
  nlohmann::json file = SmallFile({"Ġa", "日", "Ã"});
  file["decoder"] = {{"type", "ByteLevel"}};
  const auto tokenizer = MustLoad(file);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0, 1}), " a日");
  EXPECT_EQ(tokenizer->Piece(2, false), "\xC3");
}

TEST(TokenDecoder, StepsAcrossTokensAreRefused) {
  nlohmann::json strip = kStripFirst;
  const auto refused = [](const nlohmann::json& decoder) { return LoadError(File(decoder)); };
  strip["start"] = 2;
  EXPECT_THAT(refused(Steps({kFuse, strip})), HasSubstr("more than one character"));
  strip["stop"] = 1;
  strip["start"] = 0;
  EXPECT_THAT(refused(Steps({kFuse, strip})), HasSubstr("the end of the joined text"));
  EXPECT_THAT(refused(Steps({kFuse, kStripFirst, kStripFirst})), HasSubstr("twice"));
  EXPECT_THAT(refused(Steps({kFuse, kReplace})),
              HasSubstr("decoder.decoders[1]: Replace works on the joined text"));
  EXPECT_THAT(refused(Steps({kFuse, kByteFallback})), HasSubstr("ByteFallback comes after"));
  EXPECT_THAT(refused(Steps({kByteFallback, kStripFirst})), HasSubstr("between ByteFallback and Fuse"));
  nlohmann::json empty = File(Steps({kFuse, kStripFirst}));
  empty["model"]["vocab"][""] = 8;
  EXPECT_THAT(LoadError(empty), HasSubstr("token 8 decodes to nothing"));
}

TEST(TokenDecoder, UnknownKindsAreRefused) {
  for (const char* kind : {"WordPiece", "CTC", "BPEDecoder"}) {
    EXPECT_THAT(LoadError(File({{"type", kind}})), HasSubstr(kind));
  }
}

// Every decoder that loads is a function of single tokens: any sequence, cut anywhere, gives the same text.
TEST(TokenDecoder, PiecesJoinToDecode) {
  const nlohmann::json metaspace = {{"type", "Metaspace"}, {"replacement", "▁"}};
  std::mt19937 random(7);
  for (const nlohmann::json& decoder :
       {nlohmann::json(nullptr), metaspace, Steps({kReplace, kByteFallback, kFuse, kStripFirst}),
        Steps({kReplace})}) {
    const auto tokenizer = MustLoad(File(decoder));
    for (int round = 0; round < 200; ++round) {
      std::vector<int32_t> ids(random() % 12);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 10) - 1;
      ASSERT_EQ(JoinedPieces(*tokenizer, ids), tokenizer->Decode(ids));
    }
  }
}

}  // namespace
}  // namespace weir
