// Completion scripts for bash, zsh and fish, made of a program's own parser: what it takes is what completes.
//
// The name of a value says how it is completed: FILE, FOLDER (also [NAME=]FOLDER), MODEL and SESSION; of
// values with a list, such as one of OneOf, the list. Models and sessions are asked of the server
// that the line so far names, which the options with an environment variable do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace weir {

inline const std::vector<std::string> kCompletionShells = {"bash", "zsh", "fish"};

// `shell` is one of kCompletionShells. `made_by`: the command that prints this, for a comment.
std::string CompletionScript(const CLI::App& app, const std::string& shell, const std::string& made_by);

// What the scripts are made of.
struct CompletionValue {
  enum class Kind { kOther, kFile, kFolder, kWords, kModel, kSession };
  Kind kind = Kind::kOther;
  std::string label;               // such as FILE
  std::vector<std::string> words;  // of kWords
  bool repeats = false;
};

struct CompletionOption {
  std::vector<std::string> names;        // with their dashes
  std::string help;                      // its first sentence
  std::optional<CompletionValue> value;  // none: a flag
  bool connects = false;                 // says which server, and how to reach it
};

struct CompletionCommand {
  std::string name;
  std::string
      path;  // names from the program's first subcommand on, a space before each; the program's is empty
  std::string help;
  std::vector<CompletionOption> options;  // without those of the program itself, which every command takes
  std::vector<CompletionValue> positionals;
  std::vector<CompletionCommand> subcommands;
};

CompletionCommand CompletionTree(const CLI::App& app);
// The tree's commands, each before those below it.
std::vector<const CompletionCommand*> AllCommands(const CompletionCommand& root);
// The beginning of the scripts' own functions: a name as shells take it.
std::string ShellName(std::string_view program);
// How the scripts write a value's kind: file, folder, model, session, other, or "words A B C".
std::string KindText(const CompletionValue& value);
// The function of bash and zsh that prints names of the running server; empty when none of `root` is one.
std::string ServerNamesFunction(const CompletionCommand& root);

std::string BashCompletion(const CompletionCommand& root);
std::string ZshCompletion(const CompletionCommand& root);
std::string FishCompletion(const CompletionCommand& root);

}  // namespace weir
