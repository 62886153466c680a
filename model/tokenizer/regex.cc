#include "model/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "fmt/format.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = 1024 * 1024;
// A search starts at no more than this many bytes before the cancel flag is looked at again.
constexpr size_t kSearchWindow = 4096;

// What a thread needs to match; one result pair is enough for any pattern, since groups are not read.
struct Workspace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr);

  Workspace() {
    WEIR_CHECK(data != nullptr && context != nullptr && stack != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
};

std::string Pcre2Message(int code) {
  PCRE2_UCHAR buffer[200];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

size_t NextBoundary(std::string_view text, size_t pos) {
  while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) ++pos;
  return pos;
}

// Next match at or after `from`; false in `*found` when there is none.
absl::Status Search(const pcre2_code* code, const std::string& pattern, std::string_view text, size_t from,
                    const std::atomic<bool>* cancelled, bool* found, size_t* begin, size_t* end) {
  thread_local Workspace workspace;
  const PCRE2_SPTR subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  *found = false;
  while (true) {
    if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) {
      return absl::CancelledError("tokenizing was cancelled");
    }
    const size_t limit = std::min(text.size(), from + kSearchWindow);
    pcre2_set_offset_limit(workspace.context, limit);
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(code, subject, text.size(), from, options, workspace.data, workspace.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;  // the interpreter backtracks on the heap, up to its own limit
      rc = pcre2_match(code, subject, text.size(), from, options, workspace.data, workspace.context);
    }
    if (rc >= 0) {
      const PCRE2_SIZE* pair = pcre2_get_ovector_pointer(workspace.data);
      *found = true;
      *begin = pair[0];
      *end = pair[1];
      return absl::OkStatus();
    }
    if (rc != PCRE2_ERROR_NOMATCH) {
      return absl::InvalidArgumentError(fmt::format(
          "text is too costly for the tokenizer's pattern {} near byte {} ({}); shorten or split the text",
          Quoted(pattern), from, Pcre2Message(rc)));
    }
    if (limit == text.size()) return absl::OkStatus();
    from = NextBoundary(text, limit + 1);
  }
}

}  // namespace

void Regex::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  WEIR_ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(pattern));
  return CompilePcre2(translated);
}

absl::StatusOr<Regex> Regex::CompilePcre2(const std::string& pattern) {
  std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  WEIR_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C;
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions,
                                  &error, &offset, context.get()));
  if (regex.code_ == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("pattern {} does not compile: {}", Quoted(pattern), Pcre2Message(error)));
  }
  // Without JIT support the interpreter matches, only slower.
  static_cast<void>(pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE));
  return regex;
}

absl::StatusOr<Regex> Regex::Literal(std::string_view text) {
  if (text.empty()) return CompilePcre2("");
  Regex regex;
  regex.pattern_ = std::string(text);
  return regex;
}

void Regex::SplitLiteral(std::string_view text, std::vector<RegexPart>* parts) const {
  size_t done = 0;
  for (size_t at = text.find(pattern_); at != std::string_view::npos; at = text.find(pattern_, done)) {
    if (at > done) parts->push_back({done, at, false});
    done = at + pattern_.size();
    parts->push_back({at, done, true});
  }
  if (done < text.size()) parts->push_back({done, text.size(), false});
}

absl::Status Regex::Split(std::string_view text, const std::atomic<bool>* cancelled,
                          std::vector<RegexPart>* parts) const {
  parts->clear();
  if (code_ == nullptr) {
    SplitLiteral(text, parts);
    return absl::OkStatus();
  }
  size_t done = 0;  // end of the last match
  size_t from = 0;
  bool any = false;
  while (from <= text.size() && !text.empty()) {
    bool found = false;
    size_t begin = 0;
    size_t end = 0;
    WEIR_RETURN_IF_ERROR(Search(code_.get(), pattern_, text, from, cancelled, &found, &begin, &end));
    if (!found) break;
    if (begin == end && any && end == done) {
      from = NextBoundary(text, from + 1);
      continue;
    }
    if (begin > done) parts->push_back({done, begin, false});
    parts->push_back({begin, end, true});
    any = true;
    done = end;
    from = end;
  }
  if (done < text.size()) parts->push_back({done, text.size(), false});
  return absl::OkStatus();
}

bool IsScriptName(const std::string& name) {
  return name.size() > 2 && Regex::CompilePcre2(fmt::format("\\p{{sc:{}}}", name)).ok();
}

absl::StatusOr<Regex> PatternField(const Json& object, const std::string& where) {
  const Json* pattern = FindField(object, "pattern");
  const Json* literal = pattern == nullptr ? nullptr : FindField(*pattern, "String");
  const Json* expression = pattern == nullptr ? nullptr : FindField(*pattern, "Regex");
  absl::StatusOr<Regex> regex =
      TokenizerError(where, R"("pattern" must be {"String": text} or {"Regex": text})");
  if (literal != nullptr && literal->is_string()) {
    regex = Regex::Literal(literal->get_ref<const std::string&>());
  } else if (expression != nullptr && expression->is_string()) {
    regex = Regex::Compile(expression->get_ref<const std::string&>());
    if (!regex.ok()) return TokenizerError(where, std::string(regex.status().message()));
  }
  return regex;
}

}  // namespace weir
