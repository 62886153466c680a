// Values of options: which are allowed, and what to say of others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace weir {

// One of `words`. Help and completion read them from the check's description.
CLI::Validator OneOf(const std::vector<std::string>& words);

// A decimal number; both ends are allowed. For Option::transform: CLI11 by itself reads 010 as eight.
CLI::Validator WholeNumber(int64_t low, int64_t high);

// Refuses "": an option whose value got lost, such as --api-keys "$KEYS" without that variable, is not unset.
CLI::Validator NotEmpty();

// What to say of a value that is missing or, for a flag, is neither true nor false, in place of CLI11's
// words; of other errors, what they say themselves. `app` is where the option was added, or a parent of that.
std::string ValueErrorText(const CLI::App& app, const CLI::ParseError& error);

}  // namespace weir
