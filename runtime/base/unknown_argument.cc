#include "runtime/base/unknown_argument.h"

#include <algorithm>
#include <numeric>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr size_t kMaxTypos = 2;

}  // namespace

size_t EditDistance(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() +
                          1);  // distances of the characters of `from` so far to each beginning of `to`
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string ResemblingOption(const std::string& word, const std::vector<const CLI::App*>& apps) {
  std::string best;
  size_t fewest = std::min(kMaxTypos, word.size() / 3) + 1;
  for (const CLI::App* app : apps) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const size_t typos = EditDistance(word, "--" + name);
        if (typos < fewest) best = "--" + name;
        fewest = std::min(fewest, typos);
      }
    }
  }
  return best;
}

std::string UnknownArgument(const CLI::App& app, const std::vector<std::string>& extras) {
  std::vector<const CLI::App*> apps = {&app};
  std::string command = app.get_name();
  while (!apps.back()->get_subcommands().empty()) {
    apps.push_back(apps.back()->get_subcommands().front());
    command += " " + apps.back()->get_name();
  }
  const auto option = std::find_if(extras.begin(), extras.end(), [](const std::string& text) {
    return text.size() > 1 && text[0] == '-' && text != "--";
  });
  if (option == extras.end())
    return fmt::format("{} is one argument too many for {}", Quoted(extras.empty() ? "" : extras[0]),
                       command);
  const std::string word = option->substr(0, option->find('='));
  const std::string meant = ResemblingOption(word, apps);
  return fmt::format("{} is no option of {}{}", Quoted(word), command,
                     meant.empty() ? "" : fmt::format(", but {} is", meant));
}

}  // namespace weir
