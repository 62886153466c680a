#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/completion.h"

namespace weir {
namespace {

// The root's options fit behind every command.
std::string PathPattern(const CompletionCommand& command) {
  return command.path.empty() ? "*" : fmt::format("\"{}\"", command.path);
}

std::string WordsOf(const CompletionCommand& command) {
  std::vector<std::string> commands, options;
  for (const CompletionCommand& sub : command.subcommands) commands.push_back(sub.name);
  for (const CompletionOption& option : command.options)
    options.insert(options.end(), option.names.begin(), option.names.end());
  return fmt::format("    \"{}\")\n      commands='{}'\n      options='{}'\n      ;;\n", command.path,
                     fmt::join(commands, " "), fmt::join(options, " "));
}

// Commands before the program itself, whose pattern fits them all.
std::string OptionValues(const CompletionCommand& root) {
  std::string cases;
  for (const CompletionCommand* command : AllCommands(root)) {
    std::string own;
    for (const CompletionOption& option : command->options) {
      if (!option.value) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names)
        patterns.push_back(fmt::format("{}\" {}\"", PathPattern(*command), name));
      own += fmt::format("    {}) value='{}' ;;\n", fmt::join(patterns, " | "), KindText(*option.value));
    }
    cases = command->path.empty() ? own : own + cases;
  }
  return cases;
}

std::string ArgumentValues(const CompletionCommand& root) {
  std::string cases;
  for (const CompletionCommand* command : AllCommands(root)) {
    for (size_t i = 0; i < command->positionals.size(); ++i) {
      const CompletionValue& value = command->positionals[i];
      if (value.kind == CompletionValue::Kind::kOther) continue;
      cases += fmt::format("    \"{} \"{}) value='{}' ;;\n", command->path,
                           value.repeats ? "*" : std::to_string(i), KindText(value));
    }
  }
  return cases;
}

constexpr std::string_view kTables = R"sh(
# COMMAND: its subcommands and options.
_{name}_words() {{
  case $1 in
{words}  esac
}}

# COMMAND OPTION: what the option takes; nothing for a flag.
_{name}_value() {{
  value=
  case "$1 $2" in
{values}  esac
}}

# COMMAND NUMBER: what the argument of that number is, from 0.
_{name}_argument() {{
  value=other
  case "$1 $2" in
{arguments}  esac
}}
)sh";

constexpr std::string_view kMain = R"sh(
_{name}() {{
  # Bash breaks words at = and : too; these are the command line's own, the last one up to the cursor.
  local -a words=()
  local rest=${{COMP_LINE:0:COMP_POINT}} word i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    if ((i > 0)) && [[ $rest != [[:space:]]* ]]; then
      ((i == COMP_CWORD)) && word=$rest
      words[${{#words[@]}}-1]+=$word
    else
      rest=${{rest#"${{rest%%[![:space:]]*}}"}}
      ((i == COMP_CWORD)) && word=$rest
      words+=("$word")
    fi
    rest=${{rest:${{#word}}}}
  done

  local last=$((${{#words[@]}} - 1)) command= commands= options= shared= value= ended= number=0
  _{name}_words ''
  shared=$options
  for ((i = 1; i < last; i++)); do
    word=${{words[i]}}
    if [[ -n $value ]]; then
      value=
    elif [[ -z $ended && $word == -- ]]; then
      ended=1
    elif [[ -z $ended && $word == -?* ]]; then
      _{name}_value "$command" "$word"
    elif [[ -z $ended && $number == 0 && " $commands " == *" $word "* ]]; then
      command+=" $word"
      _{name}_words "$command"
    else
      number=$((number + 1))
    fi
  done

  COMPREPLY=()
  local cur=${{words[last]}}
  if [[ -z $value && -z $ended && $cur == --*=* ]]; then
    _{name}_value "$command" "${{cur%%=*}}"
    cur=${{cur#*=}}
  elif [[ -z $value && -z $ended && $cur == -* ]]; then
    value="words $options"
    [[ -n $command ]] && value+=" $shared"
  elif [[ -z $value && -z $ended && -n $commands ]]; then
    value="words $commands"
  elif [[ -z $value ]]; then
    _{name}_argument "$command" "$number"
  fi
  _{name}_reply "${{words[@]:0:last}}"
}}
complete -F _{name} {program}
)sh";

// `value` and `cur` are those of the main function.
constexpr std::string_view kReply = R"sh(
# WORD...: puts what fits `value` and begins with `cur` into COMPREPLY.
_{name}_reply() {{
  local found=
  case $value in
    file | folder)
      # Where a quote or a backslash keeps us from finding any, readline looks itself.
      compopt -o filenames -o default 2>/dev/null
      cur=${{cur#[\"\']}}
      if [[ $value == folder ]]; then
        cur=${{cur##*=}}
        found=$(compgen -d -- "$cur")
      else
        found=$(compgen -f -- "$cur")
      fi
      ;;
    words*) found=${{value#words}} found=${{found// /$'\n'}} ;;
{ask}  esac
  while IFS= read -r word; do
    [[ -n $word && $word == "$cur"* ]] && COMPREPLY+=("$word")
  done <<<"$found"
  # Readline replaces only what stands behind the last colon.
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
    local before=${{cur%"${{cur##*:}}"}} i
    for i in "${{!COMPREPLY[@]}}"; do COMPREPLY[i]=${{COMPREPLY[i]#"$before"}}; done
  fi
}}
)sh";

}  // namespace

std::string BashCompletion(const CompletionCommand& root) {
  std::string words;
  for (const CompletionCommand* command : AllCommands(root)) words += WordsOf(*command);
  const std::string name = ShellName(root.name), names = ServerNamesFunction(root);
  const std::string ask =
      names.empty() ? ""
                    : fmt::format("    model | session) found=$(_{}_names \"$value\" \"$@\") ;;\n", name);
  return fmt::format(fmt::runtime(kTables), fmt::arg("name", name), fmt::arg("words", words),
                     fmt::arg("values", OptionValues(root)), fmt::arg("arguments", ArgumentValues(root))) +
         names + fmt::format(fmt::runtime(kReply), fmt::arg("name", name), fmt::arg("ask", ask)) +
         fmt::format(fmt::runtime(kMain), fmt::arg("name", name), fmt::arg("program", root.name));
}

}  // namespace weir
