// The whole pipeline: round trips, bad text, sizes, threads.
#include "model/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/model/tokenizer/tokenizer_fixtures.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Byte-level with a few merges and tokens of its own.
nlohmann::json ByteLevelFile() {
  nlohmann::json file = SmallFile(ByteAlphabet({"Ġt", "he", "Ġthe", "in", "11", "Ãī"}),
                                  {{"Ġ", "t"}, {"h", "e"}, {"Ġt", "he"}, {"i", "n"}, {"1", "1"}, {"Ã", "ī"}});
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  file["decoder"] = {{"type", "ByteLevel"}};
  file["added_tokens"] = {Added(262, "<|end|>", true), Added(263, "  ", false)};
  return file;
}

TEST(Tokenizer, AnyUtf8ComesBack) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  TextMaker maker(TextMaker::kAnyCharacter);
  for (int round = 0; round < 2000; ++round) {
    const std::string text = maker.Make(60);
    const std::vector<int32_t> ids = Encoded(*tokenizer, text);
    ASSERT_EQ(tokenizer->Decode(ids), text);
    ASSERT_EQ(JoinedPieces(*tokenizer, ids), text);
  }
}

TEST(Tokenizer, AnyIdsDecodeToTheirBytes) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<int32_t> ids(random() % 30);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 270) - 3;
    ASSERT_EQ(JoinedPieces(*tokenizer, ids), tokenizer->Decode(ids));
  }
  // Every byte value on its own.
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{byte}), std::string(1, static_cast<char>(byte)));
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedAtItsByte) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  const std::pair<std::string, std::string> cases[] = {{"ab\xFF", "byte 2 of 3"},
                                                       {"\xC3", "byte 0"},
                                                       {"a\xC0\xAF", "byte 1"},
                                                       {"a\xED\xA0\x80", "byte 1"},
                                                       {"\xF4\x90\x80\x80", "byte 0"},
                                                       {"\xE0\x80\x80", "byte 0"},
                                                       {"\xF0\x80\x80\x80", "byte 0"},
                                                       {"\xE6\x97", "byte 0"},
                                                       {"a\x80", "byte 1"}};
  for (const auto& [text, where] : cases) {
    const auto ids = tokenizer->Encode(text, {});
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ids.status().message(), HasSubstr(where));
    EXPECT_EQ(FindInvalidUtf8(std::string(ids.status().message())), std::nullopt) << "the message itself";
  }
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 256 : 'a');
    const auto ids = tokenizer->Encode(bytes, {});
    ASSERT_EQ(ids.ok(), !FindInvalidUtf8(bytes).has_value());
    if (ids.ok()) {
      ASSERT_EQ(tokenizer->Decode(*ids), bytes);
    }
  }
}

TEST(Tokenizer, VocabularyWithHoles) {
  nlohmann::json file = SmallFile({"a"});
  file["model"]["vocab"]["b"] = 5;
  file["decoder"] = {{"type", "Fuse"}};
  const auto tokenizer = MustLoad(file);
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{0, 3, 5, 6, 1'000'000, -1}), "ab");
  EXPECT_EQ(tokenizer->Piece(3, false), "");
  EXPECT_EQ(tokenizer->Piece(6, true), "");
  EXPECT_EQ(tokenizer->Piece(-1, true), "");
  EXPECT_EQ(tokenizer->IdToToken(3), "");
  EXPECT_EQ(tokenizer->TokenToId("b"), 5);
  EXPECT_EQ(tokenizer->TokenToId("c"), std::nullopt);
  EXPECT_FALSE(tokenizer->IsSpecial(3));
  EXPECT_FALSE(tokenizer->IsSpecial(1'000'000));
}

TEST(Tokenizer, SpecialTokensHaveNoPiece) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  EXPECT_TRUE(tokenizer->IsSpecial(262));
  EXPECT_EQ(tokenizer->Piece(262, true), "");
  EXPECT_EQ(tokenizer->IdToToken(262), "<|end|>");
  EXPECT_EQ(tokenizer->TokenToId("<|end|>"), 262);
  EXPECT_EQ(tokenizer->Piece(263, false), "  ");
}

// Llama-2's layout in small: prefix, spaces as marks, byte fallback, Strip.
nlohmann::json LlamaFile() {
  nlohmann::json file = SmallFile({"<unk>", "<s>", "▁", "a", "b", "▁a", "<0xC3>", "<0xA9>"}, {{"▁", "a"}});
  file["model"]["byte_fallback"] = true;
  file["model"]["unk_token"] = "<unk>";
  file["added_tokens"] = {Added(0, "<unk>", true), Added(1, "<s>", true)};
  const nlohmann::json to_mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const nlohmann::json to_space = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  file["normalizer"] = {{"type", "Sequence"},
                        {"normalizers", {{{"type", "Prepend"}, {"prepend", "▁"}}, to_mark}}};
  file["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {to_space,
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return file;
}

TEST(Tokenizer, ContinuationsJoinToTheWholeText) {
  const auto tokenizer = MustLoad(LlamaFile());
  for (const std::string text : {"a b aé", " a", "ab  ba ", "é"}) {
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      if (FindInvalidUtf8(text.substr(0, cut)).has_value() || cut == 0) continue;
      std::vector<int32_t> ids = Encoded(*tokenizer, text.substr(0, cut));
      Tokenizer::EncodeOptions options;
      options.continuation = true;
      const std::vector<int32_t> rest = Encoded(*tokenizer, text.substr(cut), options);
      ids.insert(ids.end(), rest.begin(), rest.end());
      EXPECT_EQ(tokenizer->Decode(ids), text) << cut;
      EXPECT_EQ(JoinedPieces(*tokenizer, ids), text) << cut;
    }
  }
}

TEST(Tokenizer, UnknownTokensStayPossible) {
  const auto tokenizer = MustLoad(LlamaFile());
  EXPECT_THAT(Encoded(*tokenizer, "日"), ElementsAre(2, 0));
}

TEST(Tokenizer, TOK_11_CancelEndsAnEncode) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  std::atomic<bool> cancelled{true};
  Tokenizer::EncodeOptions options;
  options.cancelled = &cancelled;
  EXPECT_EQ(tokenizer->Encode("the", options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(tokenizer->Encode("", options).status().code(), absl::StatusCode::kCancelled);
  cancelled = false;
  EXPECT_TRUE(tokenizer->Encode("the", options).ok());
}

TEST(Tokenizer, TOK_11_CancelFromAnotherThreadEndsALongEncode) {
  nlohmann::json file = ByteLevelFile();
  // A pattern that looks to the end of the run from each of its characters.
  file["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "\\s+$"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const auto tokenizer = MustLoad(file);
  const std::string text = std::string(4'000'000, '\t') + "x";
  std::atomic<bool> cancelled{false};
  std::thread canceller([&cancelled] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cancelled = true;
  });
  Tokenizer::EncodeOptions options;
  options.cancelled = &cancelled;
  EXPECT_EQ(tokenizer->Encode(text, options).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const auto tokenizer = MustLoad(ByteLevelFile());
  TextMaker maker(TextMaker::kAnyCharacter);
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 50; ++i) {
    texts.push_back(maker.Make(80));
    expected.push_back(Encoded(*tokenizer, texts.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto ids = tokenizer->Encode(texts[i], {});
        if (!ids.ok() || *ids != expected[i] || tokenizer->Decode(*ids) != texts[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, EmptyText) {
  EXPECT_TRUE(Encoded(*MustLoad(ByteLevelFile()), "").empty());
  EXPECT_TRUE(Encoded(*MustLoad(LlamaFile()), "").empty());
  EXPECT_EQ(MustLoad(LlamaFile())->Decode({}), "");
}

}  // namespace
}  // namespace weir
