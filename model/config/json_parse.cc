#include "model/config/json_parse.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"

namespace weir {
namespace {

using Json = nlohmann::json;

// The library's own words about a fault, which repeat what it read last.
std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 200;
  std::string out(text.substr(0, kMaxBytes));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (text.size() > kMaxBytes) out += "...";
  return out;
}

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// A number's spelling that occurs nowhere in the text. Number tokens have no escapes, so a token with this
// spelling can only be one that we put there.
std::string UnusedSpelling(std::string_view text, std::string spelling) {
  while (text.find(spelling) != std::string_view::npos) spelling += '0';
  return spelling;
}

struct Substituted {
  std::string text;
  std::string infinity;
  std::string nan;
};

// Replaces the bare words by marker numbers and leaves strings alone. Whatever else is wrong stays for the
// parser.
std::optional<Substituted> SubstituteNonFinite(std::string_view text) {
  static constexpr std::string_view kInfinity = "Infinity";
  static constexpr std::string_view kNan = "NaN";
  if (text.find(kInfinity) == std::string_view::npos && text.find(kNan) == std::string_view::npos) {
    return std::nullopt;
  }
  Substituted out{{}, UnusedSpelling(text, "7.250"), UnusedSpelling(text, "8.250")};
  out.text.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      out.text.append(text.substr(i, 2));
      i += 2;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    const bool word_start = !in_string && (i == 0 || !IsWordByte(text[i - 1]));
    const auto is_word = [&](std::string_view word) {
      return word_start && text.substr(i).starts_with(word) &&
             (i + word.size() == text.size() || !IsWordByte(text[i + word.size()]));
    };
    if (is_word(kInfinity)) {
      out.text += out.infinity;
      i += kInfinity.size();
    } else if (is_word(kNan) && (i == 0 || text[i - 1] != '-')) {
      out.text += out.nan;
      i += kNan.size();
    } else {
      out.text += text[i++];
    }
  }
  return out;
}

// Builds the value tree. nlohmann's own builder keeps the last of two equal keys without a word.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(int max_depth, const Substituted* markers) : max_depth_(max_depth), markers_(markers) {}

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& spelling) override {
    if (markers_ != nullptr) {
      const bool negative = spelling.starts_with('-');
      const std::string_view magnitude = std::string_view(spelling).substr(negative ? 1 : 0);
      if (magnitude == markers_->infinity) {
        value = std::copysign(std::numeric_limits<double>::infinity(), negative ? -1.0 : 1.0);
      }
      if (magnitude == markers_->nan) value = std::numeric_limits<double>::quiet_NaN();
    }
    return Add(value) != nullptr;
  }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return Fail("binary value"); }

  bool start_object(std::size_t) override { return Push(Json::object()); }
  bool key(string_t& key) override {
    key_ = std::move(key);
    if (open_.back()->contains(key_)) return Fail(fmt::format("key {} is there twice", Quoted(key_)));
    return true;
  }
  bool end_object() override { return Pop(); }
  bool start_array(std::size_t) override { return Push(Json::array()); }
  bool end_array() override { return Pop(); }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    return Fail(Printable(error.what()));
  }

  Json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  template <class T>
  Json* Add(T&& value) {
    if (open_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(Json(std::forward<T>(value)));
      return &parent.back();
    }
    Json& child = parent[key_];
    child = Json(std::forward<T>(value));
    return &child;
  }
  bool Push(Json container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      return Fail(fmt::format("nested deeper than {} levels", max_depth_));
    }
    open_.push_back(Add(std::move(container)));
    return true;
  }
  bool Pop() {
    open_.pop_back();
    return true;
  }
  bool Fail(std::string text) {
    if (error_.empty()) error_ = std::move(text);
    return false;
  }

  const int max_depth_;
  const Substituted* const markers_;
  Json root_;
  std::vector<Json*>
      open_;  // containers not yet closed; a child's address is stable until its parent grows again
  std::string key_;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, std::string_view source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(fmt::format("{} has {} bytes of JSON, at most {} are accepted", source,
                                                  text.size(), limits.max_bytes));
  }
  std::optional<Substituted> substituted;
  if (limits.allow_nonfinite) substituted = SubstituteNonFinite(text);
  if (substituted) text = substituted->text;
  TreeBuilder builder(limits.max_depth, substituted ? &*substituted : nullptr);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(fmt::format("{} is not valid JSON: {}", source, builder.error()));
  }
  return std::move(builder.root());
}

}  // namespace weir
