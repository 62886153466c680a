// Options with a number. CLI11 reads 010 as eight, wraps -1 to the largest unsigned number and saturates
// beyond.
#pragma once

#include <charconv>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>

#include "CLI/App.hpp"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {

template <class T>
CLI::Option* AddNumberOption(CLI::App* app, const std::string& name, const char* type,
                             std::function<void(T)> set, const std::string& help) {
  const auto parse = [name, set = std::move(set)](const std::string& text) {
    T value{};
    const char* const end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc() || result.ptr != end) {
      std::string kind = "a number";
      if constexpr (std::is_integral_v<T>)
        kind = fmt::format("a whole number from {} to {}", std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max());
      throw CLI::ValidationError(name, fmt::format("{} is not {}", Quoted(text), kind));
    }
    set(value);
  };
  return app->add_option_function<std::string>(name, parse, help)->type_name(type);
}

}  // namespace weir
