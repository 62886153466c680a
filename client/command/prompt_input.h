// Where the text of a command comes from: an argument, a file, standard input or token ids.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "weir/v1/generation.pb.h"

namespace weir {

// Filled by the parser; belongs to one subcommand.
struct PromptOptions {
  std::string text;
  std::string file;
  std::string token_ids;
  bool add_special_tokens = true;
  bool parse_special = false;
  CLI::Option* text_given = nullptr;
  CLI::Option* file_given = nullptr;
  CLI::Option* token_ids_given = nullptr;
  CLI::Option* special_given = nullptr;
};

void AddPromptOptions(CLI::App* app, PromptOptions* options, const std::string& positional);

// The prompt as it travels; nullopt when none was named and `may_be_missing`. Without a name, standard input
// is read when it is not a terminal. Text must be UTF-8 and is sent byte for byte.
absl::StatusOr<std::optional<v1::Prompt>> ReadPrompt(const PromptOptions& options, bool may_be_missing);

// The whole of a file, or of standard input for "-".
absl::StatusOr<std::string> ReadAll(const std::string& path);

// Ids separated by commas or white space.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text);

}  // namespace weir
