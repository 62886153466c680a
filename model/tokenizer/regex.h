// Regex: a pattern of a tokenizer file, matched by PCRE2 with the meaning that Oniguruma gives it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

struct pcre2_real_code_8;

namespace weir {

// A stretch of a searched text: a match, or what lies between two matches.
struct RegexPart {
  size_t begin;
  size_t end;
  bool is_match;
};

// Immutable after Compile, usable from any thread (working memory is per thread).
class Regex {
 public:
  // `pattern` in Oniguruma's syntax, as tokenizer.json holds it. What PCRE2 cannot express is refused.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);
  // `pattern` in PCRE2's own syntax (UTF, UCP, multi-line).
  static absl::StatusOr<Regex> CompilePcre2(const std::string& pattern);
  // Matches `text` itself.
  static absl::StatusOr<Regex> Literal(std::string_view text);

  // Cuts `text` (valid UTF-8) into matches and the stretches between them, in order and without gaps; nothing
  // for an empty text. Empty matches are reported except right after a match. Work per match is bounded:
  // InvalidArgument when a pattern backtracks too much, Cancelled once `*cancelled` is true.
  absl::Status Split(std::string_view text, const std::atomic<bool>* cancelled,
                     std::vector<RegexPart>* parts) const;

 private:
  struct CodeDeleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  Regex() = default;
  void SplitLiteral(std::string_view text, std::vector<RegexPart>* parts) const;

  std::string pattern_;
  std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;  // null: `pattern_` is a literal
};

// The "pattern" of a Split or Replace step: {"String": literal} or {"Regex": Oniguruma pattern}.
absl::StatusOr<Regex> PatternField(const Json& object, const std::string& where);

// The PCRE2 pattern (for UTF, UCP and multi-line mode) that means what `pattern` means to Oniguruma.
absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern);

// Whether PCRE2 knows a script of that name.
bool IsScriptName(const std::string& name);

}  // namespace weir
