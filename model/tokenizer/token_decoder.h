// TokenDecoder: the "decoder" of a tokenizer.json, as a function of one token, so that text can be streamed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/regex.h"

namespace weir {

// A token as the decoder reads it.
struct DecodedToken {
  std::string_view text;
  bool verbatim = false;  // an added token that the model does not have: its text is no byte-level spelling
};

// Immutable, usable from any thread. Bytes are given out as they are, where the reference replaces broken
// UTF-8.
class TokenDecoder {
 public:
  // Refuses kinds that are not implemented, and orders of steps that look across tokens.
  static absl::StatusOr<TokenDecoder> FromJson(const Json& json);

  // The bytes that `token` adds to a text; `at_start`: it is the text's first token.
  absl::StatusOr<std::string> Decode(const DecodedToken& token, bool at_start) const;

  // A step cuts the start of the joined text. It then has to be in the first token, which may not be empty.
  bool cuts_joined_start() const { return cuts_joined_start_; }

 private:
  enum class Kind { kJoinWithSpaces, kByteLevel, kMetaspace, kByteFallback, kReplace, kStrip, kStripJoined };
  struct Step {
    Kind kind;
    std::string content;  // Metaspace, Strip: one character; Replace: what is put in
    int start = 0;        // Strip: at most so many characters
    int stop = 0;
    bool cuts_first = false;     // Metaspace: the first token loses its marks
    std::optional<Regex> regex;  // Replace
  };
  // How the tokens lie between steps, from the first step on.
  enum class Grain { kTokens, kByteRuns, kJoined };

  TokenDecoder() = default;
  absl::Status Add(const Json& json, const std::string& where, int depth, Grain* grain);
  absl::Status AddStrip(const Json& json, const std::string& where, Grain grain);
  absl::Status AddReplace(const Json& json, const std::string& where, Grain grain);
  static absl::Status Apply(const Step& step, const DecodedToken& token, bool at_start, std::string* text);

  std::vector<Step> steps_;
  bool cuts_joined_start_ = false;
};

}  // namespace weir
