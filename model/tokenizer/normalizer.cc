#include "model/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int kMaxDepth = 16;

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
}

class UnicodeForm final : public Normalizer {
 public:
  UnicodeForm(bool compose, bool compatibility) : compose_(compose), compatibility_(compatibility) {}

  // UAX #15. utf8proc_map is not used: it orders marks by a bubble sort, quadratic on a long run of them.
  absl::Status Apply(const EncodeContext&, std::string* text, bool*) const override {
    if (IsAscii(*text)) return absl::OkStatus();
    const int options = UTF8PROC_DECOMPOSE | (compatibility_ ? UTF8PROC_COMPAT : 0);
    std::vector<utf8proc_int32_t> points;
    points.reserve(text->size());
    for (size_t pos = 0; pos < text->size();) {
      utf8proc_int32_t decomposed[32];  // the longest decomposition, of U+FDFA, has 18
      const auto code_point = static_cast<utf8proc_int32_t>(NextCodePoint(*text, &pos));
      const utf8proc_ssize_t n = utf8proc_decompose_char(code_point, decomposed, 32,
                                                         static_cast<utf8proc_option_t>(options), nullptr);
      WEIR_CHECK(n >= 0 && n <= 32);
      points.insert(points.end(), decomposed, decomposed + n);
    }
    OrderMarks(&points);
    if (compose_) {
      const utf8proc_ssize_t n =
          utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                   static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
      WEIR_CHECK(n >= 0);
      points.resize(static_cast<size_t>(n));
    }
    text->clear();
    for (const utf8proc_int32_t point : points) AppendUtf8(static_cast<uint32_t>(point), text);
    return absl::OkStatus();
  }

 private:
  static int CombiningClass(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

  static void OrderMarks(std::vector<utf8proc_int32_t>* points) {
    std::vector<std::pair<int, utf8proc_int32_t>> run;
    for (size_t begin = 0; begin < points->size();) {
      if (CombiningClass((*points)[begin]) == 0) {
        ++begin;
        continue;
      }
      run.clear();
      size_t end = begin;
      for (; end < points->size(); ++end) {
        const int combining_class = CombiningClass((*points)[end]);
        if (combining_class == 0) break;
        run.emplace_back(combining_class, (*points)[end]);
      }
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = begin; i < end; ++i) (*points)[i] = run[i - begin].second;
      begin = end;
    }
  }

  const bool compose_;
  const bool compatibility_;
};

class Lowercase final : public Normalizer {
 public:
  absl::Status Apply(const EncodeContext&, std::string* text, bool*) const override {
    std::string lowered;
    lowered.reserve(text->size());
    for (size_t pos = 0; pos < text->size();) {
      const uint32_t point = NextCodePoint(*text, &pos);
      if (point == 0x130) {
        lowered += "i\u0307";  // the one character whose full lower case has two
      } else {
        AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))), &lowered);
      }
    }
    *text = std::move(lowered);
    return absl::OkStatus();
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  absl::Status Apply(const EncodeContext& context, std::string* text, bool* at_start) const override {
    if (!text->empty() && !(context.continuation && *at_start)) text->insert(0, prefix_);
    return absl::OkStatus();
  }

 private:
  const std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Apply(const EncodeContext& context, std::string* text, bool* at_start) const override {
    std::vector<RegexPart> parts;
    WEIR_RETURN_IF_ERROR(pattern_.Split(*text, context.cancelled, &parts));
    std::string replaced;
    replaced.reserve(text->size());
    for (const RegexPart& part : parts) {
      const std::string_view source = std::string_view(*text).substr(part.begin, part.end - part.begin);
      replaced.append(part.is_match ? std::string_view(content_) : source);
      if (part.is_match && part.begin == 0 && !source.empty()) {
        // The reference keeps the place of the last character replaced, so only a single one is still
        // "first".
        size_t first = 0;
        NextCodePoint(source, &first);
        if (content_.empty() || first != source.size()) *at_start = false;
      }
    }
    *text = std::move(replaced);
    return absl::OkStatus();
  }

 private:
  const Regex pattern_;
  const std::string content_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Apply(const EncodeContext& context, std::string* text, bool* at_start) const override {
    size_t begin = 0;
    if (left_ && !(context.continuation && *at_start)) {
      for (size_t pos = 0; pos < text->size() && IsWhitespace(NextCodePoint(*text, &pos));) begin = pos;
    }
    size_t end = text->size();
    while (right_ && end > begin) {
      const size_t previous = PreviousCharacter(*text, end);
      size_t pos = previous;
      if (!IsWhitespace(NextCodePoint(*text, &pos))) break;
      end = previous;
    }
    if (begin > 0) *at_start = false;
    *text = text->substr(begin, end - begin);
    return absl::OkStatus();
  }

 private:
  const bool left_;
  const bool right_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const Normalizer>> steps) : steps_(std::move(steps)) {}
  absl::Status Apply(const EncodeContext& context, std::string* text, bool* at_start) const override {
    for (const auto& step : steps_) WEIR_RETURN_IF_ERROR(step->Apply(context, text, at_start));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<const Normalizer>> steps_;
};

using NormalizerOr = absl::StatusOr<std::unique_ptr<const Normalizer>>;

NormalizerOr Build(const Json& json, const std::string& where, int depth) {
  if (depth > kMaxDepth) return TokenizerError(where, "steps are nested too deep");
  WEIR_ASSIGN_OR_RETURN(const std::string type, TypeField(json, where));
  if (type == "NFC") return std::make_unique<UnicodeForm>(true, false);
  if (type == "NFD") return std::make_unique<UnicodeForm>(false, false);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(true, true);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(false, true);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Prepend") {
    WEIR_ASSIGN_OR_RETURN(std::string prefix, StringField(json, "prepend", where));
    return std::make_unique<Prepend>(std::move(prefix));
  }
  if (type == "Replace") {
    WEIR_ASSIGN_OR_RETURN(std::string content, StringField(json, "content", where));
    WEIR_ASSIGN_OR_RETURN(Regex pattern, PatternField(json, where));
    return std::make_unique<Replace>(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    WEIR_ASSIGN_OR_RETURN(const bool left, BoolField(json, "strip_left", true, where));
    WEIR_ASSIGN_OR_RETURN(const bool right, BoolField(json, "strip_right", true, where));
    return std::make_unique<Strip>(left, right);
  }
  if (type == "Sequence") {
    const Json* list = FindField(json, "normalizers");
    if (list == nullptr || !list->is_array()) return TokenizerError(where, "\"normalizers\" must be a list");
    std::vector<std::unique_ptr<const Normalizer>> steps;
    for (size_t i = 0; i < list->size(); ++i) {
      WEIR_ASSIGN_OR_RETURN(auto step,
                            Build((*list)[i], fmt::format("{}.normalizers[{}]", where, i), depth + 1));
      steps.push_back(std::move(step));
    }
    return std::make_unique<Sequence>(std::move(steps));
  }
  return TokenizerError(where, fmt::format("kind {} is not supported", Quoted(type)));
}

}  // namespace

NormalizerOr Normalizer::FromJson(const Json& json) {
  if (json.is_null()) return nullptr;
  return Build(json, "normalizer", 0);
}

}  // namespace weir
