// The prose of --help, and its layout.
#pragma once

#include <string>
#include <string_view>

#include "CLI/Formatter.hpp"

namespace weir {

// CLI11 leaves long descriptions on one line, which this wraps at 80 columns, and marks --no-x as {false}.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
};

extern const std::string_view kSummary;
extern const std::string_view kFooter;
extern const std::string_view kGenerateFooter;
extern const std::string_view kSessionsFooter;
extern const std::string_view kScoreFooter;
extern const std::string_view kInfoFooter;
extern const std::string_view kCompletionFooter;

}  // namespace weir
