// Oniguruma to PCRE2. Both read most patterns alike; this rewrites what they read differently (\s, \w, \h,
// \b, nested and intersected classes, (?m), {n,m}+, {,n}, \uHHHH) and refuses what has no counterpart.
// Source: doc/RE of Oniguruma 6.9, pcre2pattern(3).
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr std::string_view kSpace = R"(\p{White_Space})";
constexpr std::string_view kHex = "0-9a-fA-F";
// What Oniguruma's \w is inside a class (measured over all code points): letters, marks, decimal and letter
// numbers, connectors, circled and squared letters. Outside one it also takes Latin-1's superscripts and
// fractions.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kWordOutsideClass = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kAnyCharacter = "(?s:.)";
constexpr int kMaxDepth = 50;

// What an escape or a class item stands for.
struct Item {
  std::string text;         // inside [...]; or a whole expression if `standalone`
  bool single = false;      // one literal character: may begin or end a range
  bool standalone = false;  // cannot stand inside [...]
};

std::string EscapedLiteral(std::string_view character) {
  const unsigned char c = character[0];
  return std::ispunct(c) && c < 0x80 ? "\\" + std::string(character) : std::string(character);
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    WEIR_RETURN_IF_ERROR(Body(0));
    if (pos_ < in_.size()) return Refuse("unmatched ')'");
    return std::move(out_);
  }

 private:
  absl::Status Refuse(std::string_view why) const {
    return absl::InvalidArgumentError(
        fmt::format("pattern {}: {} at byte {} is not supported", Quoted(in_), why, pos_));
  }
  bool AtEnd() const { return pos_ >= in_.size(); }
  char Peek(size_t ahead = 0) const { return pos_ + ahead < in_.size() ? in_[pos_ + ahead] : '\0'; }
  bool Looking(std::string_view at) const { return in_.substr(pos_, at.size()) == at; }
  std::string_view TakeCharacter() {
    const size_t begin = pos_;
    NextCodePoint(in_, &pos_);
    return in_.substr(begin, pos_ - begin);
  }

  // A group's inside, up to its ')' or the end of the pattern.
  absl::Status Body(int depth) {
    if (depth > kMaxDepth) return Refuse("nesting this deep");
    std::string closing;
    size_t atom = std::string::npos;  // where the last repeatable expression begins in out_
    bool repeated = false;
    while (!AtEnd() && Peek() != ')') {
      const char c = Peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        WEIR_RETURN_IF_ERROR(Quantifier(&atom, &repeated));
        continue;
      }
      atom = out_.size();
      repeated = false;
      if (c == '|') {
        out_ += '|';
        ++pos_;
        atom = std::string::npos;
      } else if (c == '(') {
        WEIR_RETURN_IF_ERROR(Group(depth, &closing, &atom));
      } else if (c == '[') {
        WEIR_ASSIGN_OR_RETURN(const Item item, Class(depth));
        out_ += item.standalone ? item.text : "[" + item.text + "]";
      } else if (c == '\\') {
        WEIR_RETURN_IF_ERROR(OutsideEscape());
      } else if (c == '.' || c == '^' || c == '$') {
        out_ += c;
        ++pos_;
      } else {
        out_ += EscapedLiteral(TakeCharacter());
      }
    }
    out_ += closing;
    return absl::OkStatus();
  }

  absl::Status Group(int depth, std::string* closing, size_t* atom) {
    if (Looking("(*")) return Refuse("a verb or callout");
    if (Looking("(?#")) {
      const size_t end = in_.find(')', pos_);
      if (end == std::string_view::npos) return Refuse("an unfinished comment");
      pos_ = end + 1;
      *atom = std::string::npos;
      return absl::OkStatus();
    }
    std::string opening = "(";
    ++pos_;
    if (Peek() == '?') {
      bool matched = false;
      for (const std::string_view kind : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
        if (!Looking(kind)) continue;
        opening += kind;
        pos_ += kind.size();
        matched = true;
        break;
      }
      if (!matched && Peek(1) == '<') {
        const size_t end = in_.find('>', pos_);
        if (end == std::string_view::npos) return Refuse("an unfinished group name");
        opening += in_.substr(pos_, end + 1 - pos_);
        pos_ = end + 1;
      } else if (!matched) {
        opening += '?';
        ++pos_;
        for (; Peek() == 'i' || Peek() == 'm' || Peek() == '-'; ++pos_) {
          opening += Peek() == 'm' ? 's' : Peek();  // Oniguruma's m: '.' matches a newline
        }
        if (Peek() != ':' && Peek() != ')') return Refuse("this kind of group");
        const bool rest_of_group = Peek() == ')';
        ++pos_;
        opening += ':';
        if (rest_of_group) {
          // (?i) covers the rest of the enclosing group, later alternatives included.
          out_ += opening;
          *closing += ')';
          *atom = std::string::npos;
          return absl::OkStatus();
        }
      }
    }
    out_ += opening;
    WEIR_RETURN_IF_ERROR(Body(depth + 1));
    if (AtEnd()) return Refuse("a group without ')'");
    ++pos_;
    out_ += ')';
    return absl::OkStatus();
  }

  // Reads {n}, {n,}, {n,m} or {,m} at pos_; leaves pos_ alone and returns "" when it is something else.
  std::string Interval(bool* exact) {
    size_t p = pos_ + 1;
    const auto digits = [&] {
      const size_t begin = p;
      while (p < in_.size() && std::isdigit(static_cast<unsigned char>(in_[p]))) ++p;
      return std::string(in_.substr(begin, p - begin));
    };
    const std::string low = digits();
    *exact = p < in_.size() && in_[p] == '}';
    std::string high;
    if (!*exact) {
      if (p >= in_.size() || in_[p] != ',') return "";
      ++p;
      high = digits();
      if (p >= in_.size() || in_[p] != '}') return "";
    }
    if (low.empty() && high.empty()) return "";
    pos_ = p + 1;
    if (*exact) return "{" + low + "}";
    return "{" + (low.empty() ? "0" : low) + "," + high + "}";
  }

  absl::Status Quantifier(size_t* atom, bool* repeated) {
    std::string text(1, Peek());
    if (Peek() == '{') {
      bool exact = false;
      text = Interval(&exact);
      if (text.empty()) {
        *atom = out_.size();
        *repeated = false;
        out_ += "\\{";
        ++pos_;
        return absl::OkStatus();
      }
      // Only ? after a range of counts means "lazy"; other marks repeat the whole again.
      if (!exact && Peek() == '?') {
        text += '?';
        ++pos_;
      }
    } else {
      ++pos_;
      if (Peek() == '?' || Peek() == '+') {
        text += Peek();
        ++pos_;
      }
    }
    if (*atom == std::string::npos) return Refuse("a quantifier after nothing");
    if (*repeated) {
      out_.insert(*atom, "(?:");
      out_ += ')';
    }
    out_ += text;
    *repeated = true;
    return absl::OkStatus();
  }

  absl::Status OutsideEscape() {
    const char c = Peek(1);
    const std::string word = fmt::format("[{}{}]", kWord, kWordOutsideClass);
    if (c == 'w') {
      out_ += word;
    } else if (c == 'W') {
      out_ += fmt::format("[^{}{}]", kWord, kWordOutsideClass);
    } else if (c == 'b' || c == 'B') {
      const std::string_view inner =
          c == 'b' ? "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))" : "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))";
      out_ += fmt::format(fmt::runtime(inner), word);
    } else if (c == 'R' || c == 'X' || c == 'N' || c == 'A' || c == 'z' || c == 'Z') {
      out_ += {'\\', c};
    } else if (c == 'O') {
      out_ += kAnyCharacter;
    } else if (c >= '1' && c <= '9') {
      if (std::isdigit(static_cast<unsigned char>(Peek(2)))) return Refuse("a back-reference above 9");
      out_ += fmt::format("(?:\\{})", c);
    } else {
      WEIR_ASSIGN_OR_RETURN(const Item item, Escape());
      out_ += item.standalone || item.single ? item.text : "[" + item.text + "]";
      return absl::OkStatus();
    }
    pos_ += 2;
    return absl::OkStatus();
  }

  // An escape that means the same inside and outside a class.
  absl::StatusOr<Item> Escape() {
    if (pos_ + 1 >= in_.size()) return Refuse("a trailing backslash");
    const char c = Peek(1);
    if (static_cast<unsigned char>(c) >= 0x80 || std::ispunct(static_cast<unsigned char>(c)) || c == ' ') {
      ++pos_;
      return Item{EscapedLiteral(TakeCharacter()), true, false};
    }
    if (c == 'x' || c == 'u') return CodePointEscape();
    if (c == 'p' || c == 'P') return Property();
    Item item;
    switch (c) {
      case 'd':
      case 'D':
        item.text = {'\\', c};
        break;
      case 's':
        item.text = kSpace;
        break;
      case 'S':
        item.text = R"(\P{White_Space})";
        break;
      case 'w':
        item.text = kWord;
        break;
      case 'W':
        item = {fmt::format("[^{}]", kWord), false, true};
        break;
      case 'h':
        item.text = kHex;
        break;
      case 'H':
        item = {fmt::format("[^{}]", kHex), false, true};
        break;
      case 'v':
        item = {"\\x0b", true, false};
        break;
      case 'n':
      case 't':
      case 'r':
      case 'f':
      case 'a':
      case 'e':
        item = {{'\\', c}, true, false};
        break;
      default:
        return Refuse(fmt::format("the escape \\{}", std::isprint(static_cast<unsigned char>(c)) ? c : '?'));
    }
    pos_ += 2;
    return item;
  }

  absl::StatusOr<Item> Property() {
    const size_t end = in_.find('}', pos_);
    if (Peek(2) != '{' || end == std::string_view::npos) return Refuse("this property");
    std::string name(in_.substr(pos_ + 3, end - pos_ - 3));
    bool negated = Peek(1) == 'P';
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.erase(0, 1);
    }
    constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
        {"Letter", "L"}, {"Mark", "M"},      {"Number", "N"}, {"Punctuation", "P"},
        {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"}};
    for (const auto& [long_name, short_name] : kLongNames) {
      if (name == long_name) name = short_name;
    }
    // PCRE2 reads a bare script name as script extensions, a larger set.
    if (IsScriptName(name)) name = "sc:" + name;
    pos_ = end + 1;
    return Item{fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name), false, false};
  }

  absl::StatusOr<Item> CodePointEscape() {
    const bool braces = Peek(2) == '{';
    size_t p = pos_ + (braces ? 3 : 2);
    const size_t begin = p;
    const size_t most = braces ? 8 : (Peek(1) == 'u' ? 4 : 2);
    while (p < in_.size() && p - begin < most && std::isxdigit(static_cast<unsigned char>(in_[p]))) ++p;
    const std::string hex(in_.substr(begin, p - begin));
    const bool complete = braces ? Peek(1) == 'x' && p < in_.size() && in_[p] == '}' && !hex.empty()
                                 : !hex.empty() && (Peek(1) == 'x' || hex.size() == 4);
    if (!complete) return Refuse("this code point");
    if (!braces && Peek(1) == 'x' && std::stoul(hex, nullptr, 16) >= 0x80) return Refuse("a raw byte");
    pos_ = p + (braces ? 1 : 0);
    return Item{fmt::format("\\x{{{}}}", hex), true, false};
  }

  // [:name:], given that "[:" is ahead; nothing if it is a plain nested class.
  absl::StatusOr<Item> PosixBracket() {
    const size_t end = in_.find(":]", pos_ + 2);
    if (end == std::string_view::npos) return Item{};
    const std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
    constexpr std::pair<std::string_view, std::string_view> kSets[] = {{"alpha", R"(\p{Alphabetic})"},
                                                                       {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                                                                       {"digit", R"(\p{Nd})"},
                                                                       {"upper", R"(\p{Uppercase})"},
                                                                       {"lower", R"(\p{Lowercase})"},
                                                                       {"space", kSpace},
                                                                       {"punct", R"(\p{P}\p{S})"},
                                                                       {"word", kWord},
                                                                       {"xdigit", kHex},
                                                                       {"cntrl", R"(\p{Cc})"},
                                                                       {"blank", R"(\p{Zs}\t)"},
                                                                       {"ascii", R"(\x00-\x7f)"}};
    for (const auto& [known, set] : kSets) {
      if (name != known) continue;
      pos_ = end + 2;
      return Item{std::string(set), false, false};
    }
    return Refuse("this POSIX bracket");
  }

  // One union of class items, up to ']' or "&&".
  absl::StatusOr<Item> ClassUnion(int depth, size_t first) {
    std::string items;
    std::vector<std::string> alternatives;
    while (!AtEnd() && !Looking("&&") && (Peek() != ']' || pos_ == first)) {
      Item item;
      if (Peek() == '[') {
        if (Peek(1) == ':') {
          WEIR_ASSIGN_OR_RETURN(item, PosixBracket());
        }
        if (item.text.empty()) {
          WEIR_ASSIGN_OR_RETURN(item, Class(depth + 1));
        }
      } else if (Looking("\\b")) {
        item = {"\\x08", true, false};
        pos_ += 2;
      } else if (Peek() == '\\') {
        WEIR_ASSIGN_OR_RETURN(item, Escape());
      } else {
        item = {EscapedLiteral(TakeCharacter()), true, false};
      }
      if (item.single && Peek() == '-' && Peek(1) != ']' && Peek(1) != '[' && pos_ + 1 < in_.size()) {
        ++pos_;
        Item last;
        if (Peek() == '\\') {
          WEIR_ASSIGN_OR_RETURN(last, Escape());
        } else {
          last = {EscapedLiteral(TakeCharacter()), true, false};
        }
        if (!last.single) return Refuse("a range that ends in a class");
        item = {item.text + "-" + last.text, false, false};
      }
      if (item.standalone) {
        alternatives.push_back(item.text);
      } else {
        items += item.text;
      }
    }
    if (alternatives.empty()) {
      if (items.empty()) return Refuse("an empty class");
      return Item{items, false, false};
    }
    std::string joined = items.empty() ? "" : "[" + items + "]";
    for (const std::string& alternative : alternatives) joined += (joined.empty() ? "" : "|") + alternative;
    return Item{"(?:" + joined + ")", false, true};
  }

  // A class in brackets: plain items, or an expression where PCRE2 has no such class.
  absl::StatusOr<Item> Class(int depth) {
    if (depth > kMaxDepth) return Refuse("nesting this deep");
    ++pos_;
    const bool negated = Peek() == '^';
    if (negated) ++pos_;
    WEIR_ASSIGN_OR_RETURN(Item set, ClassUnion(depth, pos_));
    while (Looking("&&")) {
      pos_ += 2;
      WEIR_ASSIGN_OR_RETURN(const Item other, ClassUnion(depth, std::string_view::npos));
      const auto matcher = [](const Item& item) {
        return item.standalone ? item.text : "[" + item.text + "]";
      };
      set = {fmt::format("(?:(?={}){})", matcher(set), matcher(other)), false, true};
    }
    if (Peek() != ']') return Refuse("a class without ']'");
    ++pos_;
    if (!negated) return set;
    if (!set.standalone) return Item{"[^" + set.text + "]", false, true};
    return Item{fmt::format("(?:(?!{}){})", set.text, kAnyCharacter), false, true};
  }

  const std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern) {
  if (const auto bad = FindInvalidUtf8(pattern)) {
    return absl::InvalidArgumentError(fmt::format("pattern is not valid UTF-8 at byte {}", *bad));
  }
  return Translator(pattern).Run();
}

}  // namespace weir
