// Small tokenizer.json files under which every text decodes to itself: the byte-level families by their split
// patterns, and SentencePiece's layout with byte fallback.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer/byte_level.h"
#include "nlohmann/json.hpp"

namespace weir::testing {

inline nlohmann::json ByteLevelVocabulary(const std::vector<std::string>& more) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    AppendByteLevel(std::string(1, static_cast<char>(byte)), &token);
    vocab.emplace(token, byte);
  }
  for (const std::string& token : more) vocab.emplace(token, vocab.size());
  return vocab;
}

// `pre_tokenizer` ends with a ByteLevel step.
inline nlohmann::json ByteLevelTokenizerFile(const nlohmann::json& pre_tokenizer) {
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 264}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}},
            {{"id", 265}, {"content", "  "}, {"special", false}, {"normalized", false}}}},
          {"pre_tokenizer", pre_tokenizer},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", ByteLevelVocabulary({"Ġt", "he", "Ġthe", "in", "11", "Ãī", "ĠĠ", "ĊĊ"})},
            {"merges", {"Ġ t", "h e", "Ġt he", "i n", "1 1", "Ã ī", "Ġ Ġ", "Ċ Ċ"}}}}};
}

inline nlohmann::json SplitPattern(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}
inline nlohmann::json ByteLevelStep(bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}
inline nlohmann::json PreTokenizers(const std::vector<nlohmann::json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The split patterns of the families, as their published tokenizer.json files have them.
inline nlohmann::json Gpt2PreTokenizer() { return ByteLevelStep(true); }
inline nlohmann::json Llama3PreTokenizer() {
  return PreTokenizers(
      {SplitPattern(
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
       ByteLevelStep(false)});
}
inline nlohmann::json Qwen2PreTokenizer() {
  return PreTokenizers(
      {SplitPattern(
           R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
       ByteLevelStep(false)});
}
inline nlohmann::json StarCoderPreTokenizer() {
  return PreTokenizers({{{"type", "Digits"}, {"individual_digits", true}}, ByteLevelStep(true)});
}
inline nlohmann::json FalconPreTokenizer() {
  return PreTokenizers({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                        ByteLevelStep(true),
                        {{"type", "Digits"}, {"individual_digits", false}},
                        SplitPattern("[0-9][0-9][0-9]")});
}

// SentencePiece's layout: spaces as marks, no prefix, byte fallback for what has no piece.
inline nlohmann::json ByteFallbackTokenizerFile() {
  nlohmann::json vocab = nlohmann::json::object();
  for (const char* token : {"<unk>", "<s>", "</s>"}) vocab.emplace(token, vocab.size());
  for (int byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof(token), "<0x%02X>", byte);
    vocab.emplace(token, vocab.size());
  }
  for (const char* token : {"▁", "a", "b", "t", "h", "e", "▁a", "th", "▁th", "the"})
    vocab.emplace(token, vocab.size());
  const nlohmann::json to_space = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", 1}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
          {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}},
          {"decoder",
           {{"type", "Sequence"}, {"decoders", {to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
          {"model",
           {{"type", "BPE"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"unk_token", "<unk>"},
            {"vocab", vocab},
            {"merges", {"▁ a", "t h", "▁ th", "th e"}}}}};
}

inline std::vector<nlohmann::json> LosslessTokenizerFiles() {
  std::vector<nlohmann::json> files;
  for (const nlohmann::json& pre_tokenizer : {Gpt2PreTokenizer(), Llama3PreTokenizer(), Qwen2PreTokenizer(),
                                              StarCoderPreTokenizer(), FalconPreTokenizer()})
    files.push_back(ByteLevelTokenizerFile(pre_tokenizer));
  files.push_back(ByteFallbackTokenizerFile());
  return files;
}

}  // namespace weir::testing
