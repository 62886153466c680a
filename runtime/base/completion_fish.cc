#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/completion.h"

namespace weir {
namespace {

std::string FishQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string Lines(const CompletionCommand& command, bool options) {
  std::string lines;
  const auto add = [&](const std::string& word, const std::string& help) {
    lines += fmt::format(" \\\n        {}\\t{}", FishQuoted(word), FishQuoted(help));
  };
  if (options) {
    for (const CompletionOption& option : command.options)
      for (const std::string& name : option.names) add(name, option.help);
  } else {
    for (const CompletionCommand& sub : command.subcommands) add(sub.name, sub.help);
  }
  if (lines.empty()) return "";
  return fmt::format("    case {}\n      printf '%s\\n'{}\n", FishQuoted(command.path), lines);
}

// The program's own options last, as they fit behind every command.
std::string OptionValues(const CompletionCommand& root) {
  std::string cases;
  for (const CompletionCommand* command : AllCommands(root)) {
    std::string own;
    for (const CompletionOption& option : command->options) {
      if (!option.value) continue;
      std::string patterns;
      for (const std::string& name : option.names)
        patterns += " " + FishQuoted((command->path.empty() ? "*" : command->path) + " " + name);
      own += fmt::format("    case{}\n      echo {}\n", patterns, KindText(*option.value));
    }
    cases = command->path.empty() ? cases + own : own + cases;
  }
  return cases;
}

std::string ArgumentValues(const CompletionCommand& root) {
  std::string cases;
  for (const CompletionCommand* command : AllCommands(root)) {
    for (size_t i = 0; i < command->positionals.size(); ++i) {
      const CompletionValue& value = command->positionals[i];
      if (value.kind == CompletionValue::Kind::kOther) continue;
      cases += fmt::format(
          "    case {}\n      echo {}\n",
          FishQuoted(fmt::format("{} {}", command->path, value.repeats ? "*" : std::to_string(i))),
          KindText(value));
    }
  }
  return cases;
}

constexpr std::string_view kTables = R"sh(
# COMMAND: its subcommands.
function __{name}_commands
  switch "$argv[1]"
{commands}  end
end

# COMMAND: its options.
function __{name}_options
  switch "$argv[1]"
{options}  end
end

# COMMAND OPTION: what the option takes; nothing for a flag.
function __{name}_value
  switch "$argv[1] $argv[2]"
{values}  end
end

# COMMAND NUMBER: what the argument of that number is, from 0.
function __{name}_argument
  switch "$argv[1] $argv[2]"
{arguments}  end
end
)sh";

constexpr std::string_view kMain = R"sh(
function __{name}_complete
  set -l words (commandline -opc)
  set -l cur (commandline -ct)
  set -l command ''
  set -l value ''
  set -l ended ''
  set -l number 0
  for word in $words[2..-1]
    if test -n "$value"
      set value ''
    else if test -z "$ended" -a "x$word" = x--
      set ended yes
    else if test -z "$ended"; and string match -q -- '-?*' $word
      set value (__{name}_value "$command" $word)
    else if test -z "$ended" -a $number = 0; and string match -q -- $word\t'*' (__{name}_commands "$command")
      set command "$command $word"
    else
      set number (math $number + 1)
    end
  end

  set -l before ''
  if test -z "$value" -a -z "$ended"; and string match -q -- '--*=*' $cur
    set before (string split -m 1 = -- $cur)[1]
    set value (__{name}_value "$command" $before)
    set before "$before="
    set cur (string split -m 1 = -- $cur)[2]
  else if test -z "$value" -a -z "$ended"; and string match -q -- '-*' $cur
    __{name}_options "$command"
    test -n "$command"; and __{name}_options ''
    return
  else if test -z "$value" -a -z "$ended"; and test -n "$(__{name}_commands "$command")"
    __{name}_commands "$command"
    return
  else if test -z "$value"
    set value (__{name}_argument "$command" $number)
  end
  set -l kind (string split ' ' -- $value)
  switch "$kind[1]"
    case file
      string replace -r '^' -- "$before" (__fish_complete_path "$cur")
    case folder
      # It may stand behind NAME=.
      if string match -q '*=*' -- "$cur"
        set before "$before"(string replace -r '=[^=]*$' '=' -- "$cur")
        set cur (string replace -r '^.*=' '' -- "$cur")
      end
      string replace -r '^' -- "$before" (__fish_complete_directories "$cur" '')
    case words
      printf '%s\n' "$before"$kind[2..-1]
{ask}  end
end
complete -c {program} -f -a '(__{name}_complete)'
)sh";

constexpr std::string_view kAsk = R"sh(    case model session
      string replace -r '^' -- "$before" (__{name}_names $kind[1] $words)
)sh";

constexpr std::string_view kNames = R"sh(
# KIND PROGRAM WORD...: names that the server has to which these words lead; none when it does not answer at once.
function __{name}_names
  set -l ask
  set -l words $argv[3..-1]
  while set -q words[1]
    switch $words[1]
      case {valued}
        set -a ask $words[1..2]
        set -e words[1]
      case {others}
        set -a ask $words[1]
    end
    set -e words[1]
  end
  set -a ask --timeout 1
  switch $argv[1]
    case model
      set -a ask models list
    case session
      set -a ask sessions list --limit 200
  end
  set -l program (string replace -r '^~/' "$HOME/" -- $argv[2])
  type -q -- $program; or return
  $program $ask 2>/dev/null </dev/null | string match -r '^(?:models|sessions)/[A-Za-z0-9._-]+(?= )' |
    string replace -r '^[a-z]*/' ''
end
)sh";

std::string NamesFunction(const CompletionCommand& root) {
  std::vector<std::string> valued, others;
  for (const CompletionOption& option : root.options) {
    if (!option.connects) continue;
    for (const std::string& name : option.names) {
      (option.value ? valued : others).push_back(name);
      others.push_back(FishQuoted(name + "=*"));
    }
  }
  return fmt::format(fmt::runtime(kNames), fmt::arg("name", ShellName(root.name)),
                     fmt::arg("valued", fmt::join(valued, " ")), fmt::arg("others", fmt::join(others, " ")));
}

}  // namespace

std::string FishCompletion(const CompletionCommand& root) {
  std::string commands, options;
  for (const CompletionCommand* command : AllCommands(root)) {
    commands += Lines(*command, false);
    options += Lines(*command, true);
  }
  const std::string name = ShellName(root.name);
  const bool asks = !ServerNamesFunction(root).empty();
  return fmt::format(fmt::runtime(kTables), fmt::arg("name", name), fmt::arg("commands", commands),
                     fmt::arg("options", options), fmt::arg("values", OptionValues(root)),
                     fmt::arg("arguments", ArgumentValues(root))) +
         (asks ? NamesFunction(root) : "") +
         fmt::format(fmt::runtime(kMain), fmt::arg("name", name), fmt::arg("program", root.name),
                     fmt::arg("ask", asks ? fmt::format(fmt::runtime(kAsk), fmt::arg("name", name)) : ""));
}

}  // namespace weir
