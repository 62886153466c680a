// Options with a number. CLI11 reads 010 as eight, wraps -1 to the largest unsigned number and saturates
// beyond.
#pragma once

#include <charconv>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "CLI/App.hpp"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {

// Both ends belong to the range. The type's own ends stand for none; NaN and infinity are in no range.
template <class T>
struct NumberRange {
  T low = std::numeric_limits<T>::lowest();
  T high = std::numeric_limits<T>::max();

  bool Has(T value) const { return low <= value && value <= high; }
  std::string Text() const {
    const bool has_low = low > std::numeric_limits<T>::lowest();
    const bool has_high = high < std::numeric_limits<T>::max();
    if constexpr (std::is_integral_v<T>) {
      if (has_low && !has_high) return fmt::format("a whole number of at least {}", low);
      return fmt::format("a whole number from {} to {}", low, high);
    }
    if (has_high) return fmt::format("a number from {} to {}", low, high);
    return has_low ? fmt::format("a finite number of at least {}", low) : "a finite number";
  }
};

// What `text` says as the value of option `name`; throws CLI::ValidationError unless it is in the range.
template <class T>
T ParseNumber(const std::string& name, std::string_view text, const NumberRange<T>& range) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !range.Has(value))
    throw CLI::ValidationError(name, fmt::format("{} is not {}", Quoted(text), range.Text()));
  return value;
}

template <class T>
CLI::Option* AddNumberOption(CLI::App* app, const std::string& name, const char* type, NumberRange<T> range,
                             std::function<void(T)> set, const std::string& help) {
  const auto parse = [name, range, set = std::move(set)](const std::string& text) {
    set(ParseNumber<T>(name, text, range));
  };
  return app->add_option_function<std::string>(name, parse, help)->type_name(type);
}

}  // namespace weir
