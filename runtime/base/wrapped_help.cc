#include "runtime/base/wrapped_help.h"

#include <regex>
#include <sstream>

#include "CLI/CLI.hpp"

namespace weir {
namespace {

constexpr size_t kColumns = 80;

std::string Wrap(const std::string& text, size_t width) {
  std::istringstream words(text);
  std::string out, word;
  size_t column = 0;
  while (words >> word) {
    if (column > 0 && column + 1 + word.size() > width) {
      out += '\n';
      column = 0;
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

}  // namespace

std::string WrappedHelp::make_option_name(const CLI::Option* option, bool is_positional) const {
  return CLI::detail::find_and_replace(CLI::Formatter::make_option_name(option, is_positional), "{false}",
                                       "");
}

std::string WrappedHelp::make_option_opts(const CLI::Option* option) const {
  static const std::regex kList(" ?:\\{[^}]*\\}"), kRange(":INT in \\[([0-9]+) - ([0-9]+)\\]");
  const std::string opts = std::regex_replace(CLI::Formatter::make_option_opts(option), kList, "");
  return std::regex_replace(opts, kRange, " ($1 to $2)");
}

std::string WrappedHelp::make_option_desc(const CLI::Option* option) const {
  return Wrap(option->get_description(), kColumns - get_column_width());
}

std::string WrappedHelp::make_subcommand(const CLI::App* sub) const {
  std::ostringstream out;
  CLI::detail::format_help(out, sub->get_display_name(true),
                           Wrap(sub->get_description(), kColumns - get_column_width()), get_column_width());
  return out.str();
}

std::string WrappedHelp::make_description(const CLI::App* app) const {
  return Wrap(CLI::Formatter::make_description(app), kColumns) + "\n\n";
}

}  // namespace weir
