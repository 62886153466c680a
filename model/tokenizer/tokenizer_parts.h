// What a loaded Tokenizer is made of; private to model/tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace weir {

// Decoded bytes of every id, as ranges of one string.
struct PieceTable {
  struct Range {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  std::string bytes;
  std::vector<Range> inside;  // per id
  std::vector<Range> first;   // per id, as the first token of a text

  std::string_view Get(int32_t id, bool at_start) const {
    const Range range = at_start ? first[id] : inside[id];
    return std::string_view(bytes).substr(range.begin, range.size);
  }
};

struct TokenizerParts {
  std::vector<AddedToken> added;
  AddedTokenMatcher matcher;                          // over the text as given
  AddedTokenMatcher normalized_matcher;               // over the normalized text
  std::unique_ptr<const Normalizer> normalizer;       // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<const Bpe> bpe;
  PostProcessor post_processor;

  // Per id. `known`: it has a token.
  std::vector<std::string> tokens;
  std::vector<bool> known;
  std::vector<bool> special;
  TokenIds added_ids;
  PieceTable pieces;

  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  bool clean_up = false;
  uint64_t fingerprint = 0;

  bool Has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < known.size() && known[id]; }

  static absl::StatusOr<std::unique_ptr<const TokenizerParts>> FromJson(std::string_view tokenizer_json,
                                                                        std::string_view config_json);
};

}  // namespace weir
