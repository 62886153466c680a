// What to say of a command line with more in it than its parser knows.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

// One line about the first of `extras` that looks like an option, with the option that it resembles, else
// about the first of them. `app` has parsed the line; `extras` are its remaining().
std::string UnknownArgument(const CLI::App& app, const std::vector<std::string>& extras);

// The long option, with its dashes, of one of `apps` that is nearest to `word`; empty when none is near.
std::string ResemblingOption(const std::string& word, const std::vector<const CLI::App*>& apps);

// The fewest characters to put in, take out or replace on the way from one to the other.
size_t EditDistance(const std::string& from, const std::string& to);

}  // namespace weir
