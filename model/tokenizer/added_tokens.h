// AddedTokens: the "added_tokens" of a tokenizer.json, cut out of a text before the model sees the rest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace weir {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // counts only where no word character touches it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // and after it
  bool normalized = true;    // looked for in the normalized text
};

// In the file's order; empty contents are left out, as the reference does. Ids and contents are unique.
absl::StatusOr<std::vector<AddedToken>> AddedTokensFromJson(const Json& list);

// A stretch of a text: an added token, or text between them (`token` null).
struct TextPart {
  size_t begin;
  size_t end;
  const AddedToken* token;
};

// Finds added tokens in a text. Leftmost match first, longest at equal start; at each place the search goes
// no further than the longest token, so time is linear in the text. Immutable after Add, usable from any
// thread.
class AddedTokenMatcher {
 public:
  // `token` outlives the matcher and is found where `pattern` (not empty) stands; the first of equal patterns
  // wins.
  void Add(std::string_view pattern, const AddedToken* token);

  // Cuts valid UTF-8 into parts that cover it (a token of spaces after an rstrip token overlaps what that one
  // swallowed; both count, as in the reference). With `match_special` false a special token's text is left as
  // text, and what lies inside it is not searched again.
  void Split(std::string_view text, bool match_special, std::vector<TextPart>* parts) const;

 private:
  const AddedToken* LongestAt(std::string_view text, size_t pos, size_t* end) const;

  std::array<bool, 256> starts_{};                    // bytes that begin a pattern
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte -> node; the root is 0
  std::vector<const AddedToken*> ends_ = {nullptr};   // per node: the token whose pattern ends there
};

}  // namespace weir
