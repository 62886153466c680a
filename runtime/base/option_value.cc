#include "runtime/base/option_value.h"

#include <algorithm>
#include <charconv>
#include <regex>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

// With the variable that may have brought the value instead.
std::string Named(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr || option->get_envname().empty()) return name;
  return fmt::format("{} (or {})", name, option->get_envname());
}

// `type` as CLI11 shows it: the value's name, then what checks it.
std::string AllowedText(const std::string& type) {
  static const std::regex kWords("[^:]*:\\{([^}]*)\\}"), kRange("[^:]*:INT in \\[([0-9]+) - ([0-9]+)\\]");
  std::smatch found;
  if (std::regex_match(type, found, kWords)) return std::regex_replace(found[1].str(), std::regex(","), ", ");
  if (std::regex_match(type, found, kRange))
    return fmt::format("a whole number from {} to {}", found[1].str(), found[2].str());
  return type;
}

}  // namespace

CLI::Validator OneOf(const std::vector<std::string>& words) {
  return CLI::Validator(
      [words](std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        return fmt::format("{} is not one of {}", Quoted(text), fmt::join(words, ", "));
      },
      fmt::format("{{{}}}", fmt::join(words, ",")));
}

CLI::Validator WholeNumber(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        int64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto result = std::from_chars(text.data(), end, value);
        if (result.ec != std::errc() || result.ptr != end || value < low || value > high)
          return fmt::format("{} is not a whole number from {} to {}", Quoted(text), low, high);
        text = std::to_string(value);
        return std::string();
      },
      fmt::format("INT in [{} - {}]", low, high));
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? "'' is no value; leave the option out for none" : std::string();
      },
      "");
}

std::string ValueErrorText(const CLI::App& app, const CLI::ParseError& error) {
  static const std::regex kMissing("(.*): 1 required (.*) missing"),
      kNotAFlag("Could not convert: ([^ ]*) = ([^]*)");
  const std::string what = error.what();
  std::smatch found;
  if (std::regex_match(what, found, kMissing))
    return fmt::format("{} has no value; it takes {}", Named(app, found[1].str()),
                       AllowedText(found[2].str()));
  if (std::regex_match(what, found, kNotAFlag))
    return fmt::format("{}: {} is neither true nor false", Named(app, found[1].str()),
                       Quoted(found[2].str()));
  return what;
}

}  // namespace weir
