// The layout of --help.
#pragma once

#include <string>

#include "CLI/Formatter.hpp"

namespace weir {

// CLI11 leaves long descriptions on one line, which this wraps at 80 columns, marks --no-x as {false}, and
// writes what checks a value behind its name: a range stays, in words; lists are in the descriptions.
class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* sub) const override;
  std::string make_description(const CLI::App* app) const override;
};

}  // namespace weir
