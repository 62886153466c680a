// Helpers of the tokenizer tests: small tokenizer files, encoding that must succeed, random text.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"
#include "nlohmann/json.hpp"

namespace weir {

// A tokenizer.json with these tokens (ids 0, 1, ...) and merges, to be completed by the test.
inline nlohmann::json SmallFile(const std::vector<std::string>& tokens,
                                const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (const std::string& token : tokens) vocab.emplace(token, vocab.size());
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [left, right] : merges) list.push_back(nlohmann::json::array({left, right}));
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}}};
}

// The 256 characters of the byte-level alphabet, in byte order (so that a token's id is its byte), then
// `more`.
inline std::vector<std::string> ByteAlphabet(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back();
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &tokens.back());
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline nlohmann::json Added(int32_t id, const std::string& content, bool special) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
}

inline std::unique_ptr<Tokenizer> MustLoad(const nlohmann::json& file, std::string_view config = "") {
  auto tokenizer = Tokenizer::FromJson(file.dump(), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

inline std::string LoadError(const nlohmann::json& file, std::string_view config = "") {
  const auto tokenizer = Tokenizer::FromJson(file.dump(), config);
  EXPECT_FALSE(tokenizer.ok());
  return std::string(tokenizer.status().message());
}

inline std::vector<int32_t> Encoded(const Tokenizer& tokenizer, std::string_view text,
                                    const Tokenizer::EncodeOptions& options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

// Tokens of `text` as the file spells them.
inline std::vector<std::string> Tokens(const Tokenizer& tokenizer, std::string_view text,
                                       const Tokenizer::EncodeOptions& options = {}) {
  std::vector<std::string> tokens;
  for (const int32_t id : Encoded(tokenizer, text, options)) tokens.emplace_back(tokenizer.IdToToken(id));
  return tokens;
}

// What a stream of `ids` shows.
inline std::string JoinedPieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  bool at_start = true;
  for (const int32_t id : ids) {
    text += tokenizer.Piece(id, at_start);
    if (!tokenizer.IsSpecial(id) && !tokenizer.IdToToken(id).empty()) at_start = false;
  }
  return text;
}

// Random valid UTF-8 from a fixed seed.
class TextMaker {
 public:
  enum Kind { kAnyCharacter, kAscii };
  explicit TextMaker(Kind kind) : kind_(kind) {}

  std::string Make(size_t max_characters) {
    std::string text;
    const size_t n = random_() % (max_characters + 1);
    for (size_t i = 0; i < n; ++i) AppendUtf8(Character(), &text);
    return text;
  }

 private:
  uint32_t Character() {
    constexpr uint32_t kCommon[] = {' ', '\n', '\'', 's', 'a', '1', '.', '_', '<', '>', '\t', 'Z'};
    const uint32_t pick = random_() % 8;
    if (pick < 4) return kCommon[random_() % std::size(kCommon)];
    if (pick < 6 || kind_ == kAscii) return random_() % 0x80;
    const uint32_t code_point = random_() % (pick == 6 ? 0x3000 : 0x110000);
    return code_point >= 0xD800 && code_point < 0xE000 ? 0x20 : code_point;
  }

  const Kind kind_;
  std::mt19937 random_{20260101};
};

}  // namespace weir
