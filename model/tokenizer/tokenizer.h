// Tokenizer: a Hugging Face tokenizer.json, read and applied as the `tokenizers` library does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct TokenizerParts;

// Immutable after loading; every method may be called from any thread. README.md has the rules.
class Tokenizer {
 public:
  struct EncodeOptions {
    // Put the file's template around the text (beginning-of-sequence token and such).
    bool add_special_tokens = false;
    // Text that spells a special token becomes that token. Off for what users write: they could forge turns.
    bool parse_special = false;
    // The text goes on from an earlier one: no space is put before it and none is cut from its start.
    bool continuation = false;
    // Looked at while encoding, if given; CancelledError once it is true.
    const std::atomic<bool>* cancelled = nullptr;
  };

  // Reads tokenizer.json and, where there is one, tokenizer_config.json.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                             std::string_view tokenizer_config_json = "");
  ~Tokenizer();

  // InvalidArgument for text that is not UTF-8 (naming the byte) or too costly for the file's patterns.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, const EncodeOptions& options) const;

  // The bytes of all tokens, exactly as streaming gives them; not UTF-8 if the ids are not. Ids without a
  // token decode to nothing.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // Decode for a whole text: cleaned up where tokenizer_config.json asks for it.
  std::string Detokenize(std::span<const int32_t> ids, bool skip_special = true) const;

  // The bytes that `id` adds to a decoded text: the pieces of a sequence, joined, are Decode of it.
  // `at_start`: it is the first id of the whole text that is neither special nor unknown. "" for special
  // tokens and for ids without a token. Reads tables only.
  std::string_view Piece(int32_t id, bool at_start) const;

  // Largest id + 1. Ids below it may have no token, and a model's vocabulary may be wider or narrower.
  int32_t vocab_size() const;
  std::optional<int32_t> TokenToId(std::string_view token) const;
  std::string_view IdToToken(int32_t id) const;  // as the file spells it; "" for an id without a token
  bool IsSpecial(int32_t id) const;

  // As far as tokenizer_config.json names them.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  bool clean_up_tokenization_spaces() const;

  // Equal for files that encode and decode alike; the same on every machine.
  uint64_t fingerprint() const;

 private:
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);

  const std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace weir
