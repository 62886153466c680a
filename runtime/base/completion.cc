#include "runtime/base/completion.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace weir {
namespace {

using Kind = CompletionValue::Kind;

// "Print this. Default: that." -> "Print this"; shells show one line.
std::string FirstSentence(const std::string& help) {
  std::string first = help.substr(0, std::min(help.find(". "), help.size()));
  if (!first.empty() && first.back() == '.') first.pop_back();
  return first;
}

// `type` as CLI11 shows it: the value's name, then ":" and what checks it.
CompletionValue ValueOf(const std::string& type) {
  CompletionValue value;
  value.label = type.substr(0, type.find(':'));
  const size_t open = type.find(":{"), close = type.find('}', open);
  if (open != std::string::npos && close != std::string::npos) {
    value.kind = Kind::kWords;
    value.words = CLI::detail::split(type.substr(open + 2, close - open - 2), ',');
  } else if (value.label == "FILE") {
    value.kind = Kind::kFile;
  } else if (value.label == "FOLDER" || value.label == "[NAME=]FOLDER") {
    value.kind = Kind::kFolder;
  } else if (value.label == "MODEL") {
    value.kind = Kind::kModel;
  } else if (value.label == "SESSION") {
    value.kind = Kind::kSession;
  }
  return value;
}

CompletionOption OptionOf(const CLI::Option& option) {
  CompletionOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.help = FirstSentence(option.get_description());
  out.connects = !option.get_envname().empty();
  if (option.get_items_expected_max() == 0) return out;
  out.value = ValueOf(option.get_type_name());
  out.value->repeats = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return out;
}

CompletionCommand CommandOf(const CLI::App& app, const std::string& path, std::set<std::string> inherited) {
  CompletionCommand command;
  command.name = app.get_name();
  command.path = path;
  command.help = FirstSentence(app.get_description());
  std::set<std::string> own;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.positionals.push_back(ValueOf(option->get_single_name() + option->get_type_name()));
      command.positionals.back().repeats = option->get_expected_max() > 1;
    }
    CompletionOption made = OptionOf(*option);
    if (made.names.empty() || inherited.contains(made.names.back())) continue;
    own.insert(made.names.begin(), made.names.end());
    command.options.push_back(std::move(made));
  }
  if (path.empty()) inherited = own;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    command.subcommands.push_back(CommandOf(*sub, path + " " + sub->get_name(), inherited));
  return command;
}

void Collect(const CompletionCommand& command, std::vector<const CompletionCommand*>* out) {
  out->push_back(&command);
  for (const CompletionCommand& sub : command.subcommands) Collect(sub, out);
}

bool AsksTheServer(const CompletionCommand& root) {
  const auto asks = [](const CompletionValue& value) {
    return value.kind == Kind::kModel || value.kind == Kind::kSession;
  };
  for (const CompletionCommand* command : AllCommands(root)) {
    if (std::any_of(command->positionals.begin(), command->positionals.end(), asks)) return true;
    for (const CompletionOption& option : command->options)
      if (option.value && asks(*option.value)) return true;
  }
  return false;
}

}  // namespace

CompletionCommand CompletionTree(const CLI::App& app) { return CommandOf(app, "", {}); }

std::vector<const CompletionCommand*> AllCommands(const CompletionCommand& root) {
  std::vector<const CompletionCommand*> commands;
  Collect(root, &commands);
  return commands;
}

std::string ShellName(std::string_view program) {
  std::string name(program);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string KindText(const CompletionValue& value) {
  switch (value.kind) {
    case Kind::kFile:
      return "file";
    case Kind::kFolder:
      return "folder";
    case Kind::kModel:
      return "model";
    case Kind::kSession:
      return "session";
    case Kind::kWords:
      return fmt::format("words {}", fmt::join(value.words, " "));
    case Kind::kOther:
      break;
  }
  return "other";
}

std::string ServerNamesFunction(const CompletionCommand& root) {
  if (!AsksTheServer(root)) return "";
  std::vector<std::string> alone, valued;
  for (const CompletionOption& option : root.options) {
    if (!option.connects) continue;
    for (const std::string& name : option.names) {
      (option.value ? valued : alone).push_back(name);
      alone.push_back(name + "=*");
    }
  }
  return fmt::format(
      R"sh(
# KIND PROGRAM WORD...: names that the server has to which these words lead; none when it does not answer at once.
# What does not look like a name is left out, as it comes from elsewhere.
_{name}_names() {{
  local kind=$1 program=${{2/#\~\//$HOME/}} answer
  local -a ask
  shift 2
  while (($#)); do
    case $1 in
      {valued})
        (($# > 1)) || break
        ask+=("$1" "$2")
        shift
        ;;
      {alone}) ask+=("$1") ;;
    esac
    shift
  done
  ask+=(--timeout 1)
  case $kind in
    model) ask+=(models list) ;;
    session) ask+=(sessions list --limit 200) ;;
  esac
  "$program" "${{ask[@]}}" 2>/dev/null </dev/null | while read -r answer _; do
    case $answer in
      models/*[!A-Za-z0-9._-]* | sessions/*[!A-Za-z0-9._-]*) ;;
      models/* | sessions/*) printf '%s\n' "${{answer#*/}}" ;;
    esac
  done
}}
)sh",
      fmt::arg("name", ShellName(root.name)), fmt::arg("valued", fmt::join(valued, " | ")),
      fmt::arg("alone", fmt::join(alone, " | ")));
}

std::string CompletionScript(const CLI::App& app, const std::string& shell, const std::string& made_by) {
  const CompletionCommand root = CompletionTree(app);
  const std::string head = shell == "zsh" ? fmt::format("#compdef {}\n", root.name) : "";
  return head + fmt::format("# Completion of {} for {}; made by: {}\n", root.name, shell, made_by) +
         (shell == "bash"  ? BashCompletion(root)
          : shell == "zsh" ? ZshCompletion(root)
                           : FishCompletion(root));
}

}  // namespace weir
