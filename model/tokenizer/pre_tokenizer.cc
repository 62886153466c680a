#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/regex.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int kMaxDepth = 16;

// GPT-2's split pattern (openai/gpt-2, encoder.py).
constexpr char kGpt2Pattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The Whitespace step reads \w as UTS #18 does, so these are written out in PCRE2's own terms.
constexpr char kUnicodeWord[] =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
    R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

std::optional<Behavior> BehaviorFromName(std::string_view name) {
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return std::nullopt;
}

// Joins or drops `parts` (matches and what lies between) as `behavior` says; what is left are the new words.
void ApplyBehavior(Behavior behavior, std::vector<RegexPart>* parts) {
  std::vector<RegexPart>& p = *parts;
  size_t kept = 0;
  bool previous = false;
  switch (behavior) {
    case Behavior::kIsolated:
      break;
    case Behavior::kRemoved:
      p.erase(std::remove_if(p.begin(), p.end(), [](const RegexPart& part) { return part.is_match; }),
              p.end());
      break;
    case Behavior::kContiguous:
    case Behavior::kMergedWithPrevious:
      for (const RegexPart part : p) {
        const bool joins =
            behavior == Behavior::kContiguous ? part.is_match == previous : part.is_match && !previous;
        if (joins && kept > 0) {
          p[kept - 1].end = part.end;
        } else {
          p[kept++] = part;
        }
        previous = part.is_match;
      }
      p.resize(kept);
      break;
    case Behavior::kMergedWithNext: {
      size_t first = p.size();
      for (size_t i = p.size(); i-- > 0;) {
        const RegexPart part = p[i];
        if (part.is_match && !previous && first < p.size()) {
          p[first].begin = part.begin;
        } else {
          p[--first] = part;
        }
        previous = part.is_match;
      }
      p.erase(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(first));
      break;
    }
  }
}

void AddSpan(size_t begin, size_t end, bool at_start, std::vector<WordSpan>* spans) {
  if (begin < end) spans->push_back({begin, end, at_start});
}

// Cuts the word [offset, offset + word.size()) of a text at the matches of `regex`.
absl::Status SplitWord(const EncodeContext& context, const Regex& regex, Behavior behavior, bool invert,
                       std::string_view word, size_t offset, bool at_start, std::vector<RegexPart>* parts,
                       std::vector<WordSpan>* spans) {
  WEIR_RETURN_IF_ERROR(regex.Split(word, context.cancelled, parts));
  if (invert) {
    for (RegexPart& part : *parts) part.is_match = !part.is_match;
  }
  ApplyBehavior(behavior, parts);
  for (const RegexPart& part : *parts) {
    AddSpan(offset + part.begin, offset + part.end, at_start && part.begin == 0, spans);
  }
  return absl::OkStatus();
}

class Split final : public PreTokenizer {
 public:
  Split(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(const EncodeContext& context, Words* words) const override {
    std::vector<WordSpan> spans;
    std::vector<RegexPart> parts;
    for (const WordSpan& span : words->spans) {
      const std::string_view word = std::string_view(words->text).substr(span.begin, span.end - span.begin);
      WEIR_RETURN_IF_ERROR(
          SplitWord(context, regex_, behavior_, invert_, word, span.begin, span.at_start, &parts, &spans));
    }
    words->spans = std::move(spans);
    return absl::OkStatus();
  }

 private:
  const Regex regex_;
  const Behavior behavior_;
  const bool invert_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  absl::Status Apply(const EncodeContext& context, Words* words) const override {
    Words mapped;
    mapped.text.reserve(words->text.size() * 3 / 2);
    std::vector<WordSpan> pieces;
    std::vector<RegexPart> parts;
    std::string prefixed;
    for (const WordSpan& span : words->spans) {
      std::string_view word = std::string_view(words->text).substr(span.begin, span.end - span.begin);
      if (add_prefix_space_ && word[0] != ' ' && !(context.continuation && span.at_start)) {
        prefixed = " ";
        prefixed += word;
        word = prefixed;
      }
      pieces.clear();
      if (regex_.has_value()) {
        WEIR_RETURN_IF_ERROR(
            SplitWord(context, *regex_, Behavior::kIsolated, false, word, 0, span.at_start, &parts, &pieces));
      } else {
        AddSpan(0, word.size(), span.at_start, &pieces);
      }
      for (const WordSpan& piece : pieces) {
        const size_t begin = mapped.text.size();
        AppendByteLevel(word.substr(piece.begin, piece.end - piece.begin), &mapped.text);
        AddSpan(begin, mapped.text.size(), piece.at_start, &mapped.spans);
      }
    }
    *words = std::move(mapped);
    return absl::OkStatus();
  }

 private:
  const bool add_prefix_space_;
  const std::optional<Regex> regex_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Scheme { kAlways, kFirst, kNever };

  Metaspace(std::string mark, Regex mark_regex, Scheme scheme, bool split)
      : mark_(std::move(mark)), mark_regex_(std::move(mark_regex)), scheme_(scheme), split_(split) {}

  absl::Status Apply(const EncodeContext& context, Words* words) const override {
    Words marked;
    marked.text.reserve(words->text.size() * 3 / 2);
    std::vector<RegexPart> parts;
    for (const WordSpan& span : words->spans) {
      const std::string_view word = std::string_view(words->text).substr(span.begin, span.end - span.begin);
      const size_t begin = marked.text.size();
      const bool wanted = scheme_ == Scheme::kAlways || (scheme_ == Scheme::kFirst && span.at_start);
      const bool has_mark = word[0] == ' ' || word.substr(0, mark_.size()) == mark_;
      if (wanted && !has_mark && !(context.continuation && span.at_start)) marked.text += mark_;
      for (const char c : word) {
        if (c == ' ') {
          marked.text += mark_;
        } else {
          marked.text += c;
        }
      }
      if (split_) {
        const std::string_view now = std::string_view(marked.text).substr(begin);
        WEIR_RETURN_IF_ERROR(SplitWord(context, mark_regex_, Behavior::kMergedWithNext, false, now, begin,
                                       span.at_start, &parts, &marked.spans));
      } else {
        AddSpan(begin, marked.text.size(), span.at_start, &marked.spans);
      }
    }
    *words = std::move(marked);
    return absl::OkStatus();
  }

 private:
  const std::string mark_;
  const Regex mark_regex_;
  const Scheme scheme_;
  const bool split_;
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const PreTokenizer>> steps) : steps_(std::move(steps)) {}
  absl::Status Apply(const EncodeContext& context, Words* words) const override {
    for (const auto& step : steps_) WEIR_RETURN_IF_ERROR(step->Apply(context, words));
    return absl::OkStatus();
  }

 private:
  const std::vector<std::unique_ptr<const PreTokenizer>> steps_;
};

using PreTokenizerOr = absl::StatusOr<std::unique_ptr<const PreTokenizer>>;

absl::StatusOr<Behavior> BehaviorField(const Json& json, const std::string& where) {
  WEIR_ASSIGN_OR_RETURN(const std::string name, StringField(json, "behavior", where));
  const std::optional<Behavior> behavior = BehaviorFromName(name);
  if (!behavior.has_value()) {
    return TokenizerError(where, fmt::format("behavior {} is not supported", Quoted(name)));
  }
  return *behavior;
}

PreTokenizerOr MakeSplit(const std::string& pcre2_pattern, Behavior behavior, bool invert) {
  WEIR_ASSIGN_OR_RETURN(Regex regex, Regex::CompilePcre2(pcre2_pattern));
  return std::make_unique<Split>(std::move(regex), behavior, invert);
}

PreTokenizerOr BuildByteLevel(const Json& json, const std::string& where) {
  WEIR_ASSIGN_OR_RETURN(const bool prefix, BoolField(json, "add_prefix_space", true, where));
  WEIR_ASSIGN_OR_RETURN(const bool use_regex, BoolField(json, "use_regex", true, where));
  std::optional<Regex> regex;
  if (use_regex) {
    WEIR_ASSIGN_OR_RETURN(regex, Regex::Compile(kGpt2Pattern));
  }
  return std::make_unique<ByteLevel>(prefix, std::move(regex));
}

PreTokenizerOr BuildMetaspace(const Json& json, const std::string& where) {
  WEIR_ASSIGN_OR_RETURN(std::string mark, CharacterField(json, "replacement", where));
  WEIR_ASSIGN_OR_RETURN(const bool split, BoolField(json, "split", true, where));
  WEIR_ASSIGN_OR_RETURN(const bool legacy_prefix, BoolField(json, "add_prefix_space", true, where));
  std::string name = legacy_prefix ? "always" : "never";
  if (FindField(json, "prepend_scheme") != nullptr) {
    WEIR_ASSIGN_OR_RETURN(name, StringField(json, "prepend_scheme", where));
  }
  if (!legacy_prefix && name != "never") {
    return TokenizerError(where, "\"add_prefix_space\": false contradicts \"prepend_scheme\"");
  }
  Metaspace::Scheme scheme = Metaspace::Scheme::kNever;
  if (name == "always") {
    scheme = Metaspace::Scheme::kAlways;
  } else if (name == "first") {
    scheme = Metaspace::Scheme::kFirst;
  } else if (name != "never") {
    return TokenizerError(where, fmt::format("prepend_scheme {} is not supported", Quoted(name)));
  }
  WEIR_ASSIGN_OR_RETURN(Regex regex, Regex::Literal(mark));
  return std::make_unique<Metaspace>(std::move(mark), std::move(regex), scheme, split);
}

PreTokenizerOr Build(const Json& json, const std::string& where, int depth) {
  if (depth > kMaxDepth) return TokenizerError(where, "steps are nested too deep");
  WEIR_ASSIGN_OR_RETURN(const std::string type, TypeField(json, where));
  if (type == "ByteLevel") return BuildByteLevel(json, where);
  if (type == "Metaspace") return BuildMetaspace(json, where);
  if (type == "WhitespaceSplit") return MakeSplit(R"(\p{White_Space})", Behavior::kRemoved, false);
  if (type == "Whitespace") {
    return MakeSplit(fmt::format(R"([{0}]+|[^{0}\p{{White_Space}}]+)", kUnicodeWord), Behavior::kRemoved,
                     true);
  }
  if (type == "Digits") {
    WEIR_ASSIGN_OR_RETURN(const bool individual, BoolField(json, "individual_digits", false, where));
    return MakeSplit(R"(\p{N})", individual ? Behavior::kIsolated : Behavior::kContiguous, false);
  }
  if (type == "Punctuation") {
    Behavior behavior = Behavior::kIsolated;
    if (FindField(json, "behavior") != nullptr) {
      WEIR_ASSIGN_OR_RETURN(behavior, BehaviorField(json, where));
    }
    return MakeSplit(R"([\p{P}$+<=>^`|~])", behavior, false);
  }
  if (type == "Split") {
    WEIR_ASSIGN_OR_RETURN(Regex regex, PatternField(json, where));
    WEIR_ASSIGN_OR_RETURN(const Behavior behavior, BehaviorField(json, where));
    WEIR_ASSIGN_OR_RETURN(const bool invert, BoolField(json, "invert", false, where));
    return std::make_unique<Split>(std::move(regex), behavior, invert);
  }
  if (type == "Sequence") {
    const Json* list = FindField(json, "pretokenizers");
    if (list == nullptr || !list->is_array())
      return TokenizerError(where, "\"pretokenizers\" must be a list");
    std::vector<std::unique_ptr<const PreTokenizer>> steps;
    for (size_t i = 0; i < list->size(); ++i) {
      WEIR_ASSIGN_OR_RETURN(auto step,
                            Build((*list)[i], fmt::format("{}.pretokenizers[{}]", where, i), depth + 1));
      steps.push_back(std::move(step));
    }
    return std::make_unique<Sequence>(std::move(steps));
  }
  return TokenizerError(where, fmt::format("kind {} is not supported", Quoted(type)));
}

}  // namespace

PreTokenizerOr PreTokenizer::FromJson(const Json& json) {
  if (json.is_null()) return nullptr;
  return Build(json, "pre_tokenizer", 0);
}

}  // namespace weir
