#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0) {
    size_t before = PreviousCharacter(text, begin);
    if (IsWordCharacter(NextCodePoint(text, &before))) return false;
  }
  size_t after = end;
  return end == text.size() || !IsWordCharacter(NextCodePoint(text, &after));
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> AddedTokensFromJson(const Json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array()) return TokenizerError("added_tokens", "must be a list");
  absl::flat_hash_set<int32_t> ids;
  absl::flat_hash_set<std::string> contents;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const Json& entry = list[i];
    if (!entry.is_object() || !entry.contains("id"))
      return TokenizerError(where, "must be an object with \"id\"");
    AddedToken token;
    WEIR_ASSIGN_OR_RETURN(token.id, IdValue(entry["id"], where + ".id"));
    WEIR_ASSIGN_OR_RETURN(token.content, StringField(entry, "content", where));
    WEIR_ASSIGN_OR_RETURN(token.special, BoolField(entry, "special", false, where));
    WEIR_ASSIGN_OR_RETURN(token.single_word, BoolField(entry, "single_word", false, where));
    WEIR_ASSIGN_OR_RETURN(token.lstrip, BoolField(entry, "lstrip", false, where));
    WEIR_ASSIGN_OR_RETURN(token.rstrip, BoolField(entry, "rstrip", false, where));
    WEIR_ASSIGN_OR_RETURN(token.normalized, BoolField(entry, "normalized", !token.special, where));
    if (token.content.empty()) continue;
    if (!ids.insert(token.id).second)
      return TokenizerError(where, fmt::format("id {} is used twice", token.id));
    if (!contents.insert(token.content).second) {
      return TokenizerError(where, fmt::format("{} is listed twice", Quoted(token.content)));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenMatcher::Add(std::string_view pattern, const AddedToken* token) {
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  uint32_t node = 0;
  for (const unsigned char byte : pattern) {
    const auto [it, is_new] =
        children_.try_emplace(uint64_t{node} << 8 | byte, static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(nullptr);
    node = it->second;
  }
  if (ends_[node] == nullptr) ends_[node] = token;
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view text, size_t pos, size_t* end) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t i = pos; i < text.size(); ++i) {
    const auto it = children_.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
    if (it == children_.end()) break;
    node = it->second;
    if (ends_[node] != nullptr) {
      longest = ends_[node];
      *end = i + 1;
    }
  }
  return longest;
}

void AddedTokenMatcher::Split(std::string_view text, bool match_special, std::vector<TextPart>* parts) const {
  parts->clear();
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t end = 0;
    const AddedToken* token =
        starts_[static_cast<unsigned char>(text[pos])] ? LongestAt(text, pos, &end) : nullptr;
    if (token == nullptr) {
      ++pos;
      continue;
    }
    size_t begin = std::exchange(pos, end);
    if (token->special && !match_special) continue;
    if (token->single_word && !StandsAlone(text, begin, end)) continue;
    while (token->lstrip && begin > done) {
      const size_t previous = PreviousCharacter(text, begin);
      size_t at = previous;
      if (!IsWhitespace(NextCodePoint(text, &at))) break;
      begin = previous;
    }
    for (size_t at = end; token->rstrip && at < text.size() && IsWhitespace(NextCodePoint(text, &at));)
      end = at;
    if (begin > done) parts->push_back({done, begin, nullptr});
    parts->push_back({begin, end, token});
    done = end;
  }
  if (done < text.size()) parts->push_back({done, text.size(), nullptr});
}

}  // namespace weir
