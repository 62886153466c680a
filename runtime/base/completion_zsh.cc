#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/completion.h"

namespace weir {
namespace {

using Kind = CompletionValue::Kind;

// For a word between single quotes, with a backslash before each of `special`.
std::string Escape(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos || c == '\\') out += '\\';
    out += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out;
}

// ":MESSAGE:ACTION" of _arguments.
std::string ValueSpec(const CompletionValue& value, const std::string& name) {
  std::string action = " ";
  switch (value.kind) {
    case Kind::kFile:
      action = "_files";
      break;
    case Kind::kFolder:
      action = fmt::format("_{}_folders", name);
      break;
    case Kind::kWords:
      action = fmt::format("({})", fmt::join(value.words, " "));
      break;
    case Kind::kModel:
      action = fmt::format("_{}_model", name);
      break;
    case Kind::kSession:
      action = fmt::format("_{}_session", name);
      break;
    case Kind::kOther:
      break;
  }
  return fmt::format(":{}:{}", Escape(value.label, ":"), action);
}

std::string OptionSpecs(const CompletionOption& option, const std::string& name) {
  std::string specs;
  for (const std::string& flag : option.names) {
    const bool repeats = option.value && option.value->repeats;
    const std::string before = repeats ? "*" : fmt::format("({})", fmt::join(option.names, " "));
    const char* const joint = !option.value ? "" : flag[1] == '-' ? "=" : "+";
    specs += fmt::format("    '{}{}{}[{}]{}'\n", before, flag, joint, Escape(option.help, "[]"),
                         option.value ? ValueSpec(*option.value, name) : "");
  }
  return specs;
}

std::string FunctionOf(const CompletionCommand& command, const std::string& name) {
  std::string function = "_" + name + "_";
  for (const char c : command.path) function += c == ' ' ? '_' : c;
  return function;
}

constexpr std::string_view kLeaf = R"sh(
{function}() {{
  local -a specs=(
{specs}  )
  _arguments -s -S $shared $specs
}}
)sh";

constexpr std::string_view kGroup = R"sh(
{function}() {{
  local curcontext=$curcontext state line ret=1
  local -a specs=(
{specs}  ) commands=(
{commands}  )
  _arguments -C -s -S $shared $specs '(-)1: :->command' '(-)*:: :->rest' && ret=0
  case $state in
    command) _describe -t commands command commands && ret=0 ;;
    rest)
      case $line[1] in
{cases}      esac
      ;;
  esac
  return ret
}}
)sh";

std::string Functions(const CompletionCommand& command, const std::string& name) {
  std::string specs, commands, cases, below;
  if (!command.path.empty())
    for (const CompletionOption& option : command.options) specs += OptionSpecs(option, name);
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const CompletionValue& value = command.positionals[i];
    specs += fmt::format("    '{}{}'\n", value.repeats ? "*" : std::to_string(i + 1), ValueSpec(value, name));
  }
  for (const CompletionCommand& sub : command.subcommands) {
    commands += fmt::format("    '{}:{}'\n", sub.name, Escape(sub.help, ""));
    cases += fmt::format("        {}) {} && ret=0 ;;\n", sub.name, FunctionOf(sub, name));
    below += Functions(sub, name);
  }
  return below + fmt::format(fmt::runtime(command.subcommands.empty() ? kLeaf : kGroup),
                             fmt::arg("function", FunctionOf(command, name)), fmt::arg("specs", specs),
                             fmt::arg("commands", commands), fmt::arg("cases", cases));
}

// A folder may stand behind NAME=.
constexpr std::string_view kMain = R"sh(
_{name}_folders() {{
  compset -P '*='
  _files -/
}}

_{name}() {{
  local -a line_so_far=("${{(@)words[1,CURRENT-1]}}") shared=(
{shared}  )
  _{name}_
}}

# As a file of fpath this is the body of the function; otherwise it defines it.
if [[ ${{funcstack[1]}} == _{name} ]]; then _{name} "$@"; else compdef _{name} {program}; fi
)sh";

// _arguments puts options of compadd behind the name of the function that it calls.
constexpr std::string_view kServer = R"sh(
_{name}_model() {{ _{name}_offer model "$@" }}
_{name}_session() {{ _{name}_offer session "$@" }}
_{name}_offer() {{
  local -a names=(${{(f)"$(_{name}_names $1 "${{line_so_far[@]}}")"}})
  shift
  compadd "$@" -a names
}}
)sh";

}  // namespace

std::string ZshCompletion(const CompletionCommand& root) {
  const std::string name = ShellName(root.name), names = ServerNamesFunction(root);
  std::string shared;
  for (const CompletionOption& option : root.options) shared += OptionSpecs(option, name);
  return names + (names.empty() ? "" : fmt::format(fmt::runtime(kServer), fmt::arg("name", name))) +
         Functions(root, name) +
         fmt::format(fmt::runtime(kMain), fmt::arg("name", name), fmt::arg("program", root.name),
                     fmt::arg("shared", shared));
}

}  // namespace weir
