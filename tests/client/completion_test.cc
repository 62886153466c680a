// weir completion: what the scripts offer, asked of the shells themselves.
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <sstream>

#include "CLI/CLI.hpp"
#include "client/command/app.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"
#include "tests/e2e/process.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using testing::Process;
using testing::TempDir;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;
using Lines = std::vector<std::string>;

Lines LinesOf(const std::string& text) {
  Lines lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// As Readline breaks a line: at spaces, and runs of = and : are words of their own.
Lines ReadlineWords(const std::string& line) {
  Lines words;
  bool open = false;  // the last word may grow
  for (const char c : line) {
    const bool breaks = c == '=' || c == ':';
    if (c == ' ') {
      open = false;
    } else if (open && breaks == (words.back().find_first_of("=:") == 0)) {
      words.back() += c;
    } else {
      words.emplace_back(1, c);
      open = true;
    }
  }
  if (!open) words.emplace_back();
  return words;
}

std::string ShellQuoted(const std::string& text) { return "'" + text + "'"; }

bool HasShell(const std::string& shell) {
  return access(("/usr/bin/" + shell).c_str(), X_OK) == 0 || access(("/bin/" + shell).c_str(), X_OK) == 0;
}

// Output of a script, errors included.
std::string RunShell(const std::string& shell, const std::string& text) {
  const TempDir dir;
  Process process({"/usr/bin/env", "-u", "WEIR_SERVER", shell, dir.Write("script", text)});
  EXPECT_EQ(process.Wait(), 0) << process.output();
  return process.output();
}

// What bash would offer at the end of each line; a line that begins with "weir " means this build's.
std::vector<Lines> BashOffers(const Lines& lines, const std::string& script, const std::string& function) {
  std::string text = "set -u\n" + script + "\n";
  for (const std::string& line : lines) {
    const Lines words = ReadlineWords(line);
    text += "COMP_WORDS=(";
    for (const std::string& word : words) text += ShellQuoted(word == "weir" ? WEIR_COMMAND : word) + " ";
    const std::string typed =
        line.rfind("weir", 0) == 0 && line.rfind("weir-", 0) != 0 ? WEIR_COMMAND + line.substr(4) : line;
    text += fmt::format(
        ")\nCOMP_CWORD={}\nCOMP_LINE={}\nCOMP_POINT=${{#COMP_LINE}}\n{}\n"
        "printf '%s\\n' ${{COMPREPLY[@]+\"${{COMPREPLY[@]}}\"}}\necho ---\n",
        words.size() - 1, ShellQuoted(typed), function);
  }
  std::vector<Lines> offers(1);
  for (const std::string& line : LinesOf(RunShell("bash", text))) {
    if (line == "---")
      offers.emplace_back();
    else if (!line.empty())
      offers.back().push_back(line);
  }
  offers.pop_back();
  EXPECT_EQ(offers.size(), lines.size());
  offers.resize(lines.size());
  return offers;
}

std::string Script(const std::string& shell) {
  const ChildResult result = RunWeir({"completion", shell});
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.err, IsEmpty());
  return result.out;
}

Lines Bash(const std::string& line) {
  static const std::string script = Script("bash");
  return BashOffers({line}, script, "_weir")[0];
}

Lines LongOptions(const CLI::App& app) {
  Lines names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// The real parser, walked without the code under test.
struct Walked {
  std::string line;  // "weir sessions export"
  Lines subcommands, options;
};
std::vector<Walked> WalkTheApp() {
  CLI::App app;
  Context context;
  BuildApp(&app, &context);
  const Lines of_the_root = LongOptions(app);
  std::vector<Walked> all;
  const std::function<void(const CLI::App&, const std::string&)> walk = [&](const CLI::App& at,
                                                                            const std::string& line) {
    Walked walked{line, {}, LongOptions(at)};
    if (!all.empty())
      for (const std::string& name : of_the_root)
        if (std::find(walked.options.begin(), walked.options.end(), name) == walked.options.end())
          walked.options.push_back(name);
    const auto subcommands = at.get_subcommands([](const CLI::App*) { return true; });
    for (const CLI::App* sub : subcommands) walked.subcommands.push_back(sub->get_name());
    all.push_back(walked);
    for (const CLI::App* sub : subcommands) walk(*sub, line + " " + sub->get_name());
  };
  walk(app, "weir");
  return all;
}

TEST(Completion, EverySubcommandAndLongOptionCompletesInBash) {
  const std::vector<Walked> all = WalkTheApp();
  ASSERT_GT(all.size(), 20u);
  Lines lines;
  for (const Walked& walked : all) {
    lines.push_back(walked.line + " --");
    if (!walked.subcommands.empty()) lines.push_back(walked.line + " ");
  }
  const std::vector<Lines> offers = BashOffers(lines, Script("bash"), "_weir");
  size_t at = 0;
  for (const Walked& walked : all) {
    EXPECT_THAT(offers[at++], UnorderedElementsAreArray(walked.options)) << walked.line;
    if (!walked.subcommands.empty())
      EXPECT_THAT(offers[at++], UnorderedElementsAreArray(walked.subcommands)) << walked.line;
  }
}

TEST(Completion, EverySubcommandAndLongOptionCompletesInFish) {
  if (!HasShell("fish")) GTEST_SKIP() << "no fish here";
  std::string text = Script("fish") + "\n";
  for (const Walked& walked : WalkTheApp())
    text += fmt::format("complete -C '{} --'\necho ---\ncomplete -C '{} '\necho ---\n", walked.line,
                        walked.subcommands.empty() ? "weir completion" : walked.line);
  std::vector<Lines> offers(1);
  for (const std::string& line : LinesOf(RunShell("fish", text))) {
    if (line == "---")
      offers.emplace_back();
    else
      offers.back().push_back(line.substr(0, line.find('\t')));
  }
  size_t at = 0;
  for (const Walked& walked : WalkTheApp()) {
    ASSERT_LT(at + 1, offers.size());
    EXPECT_THAT(offers[at++], UnorderedElementsAreArray(walked.options)) << walked.line;
    if (walked.subcommands.empty())
      EXPECT_THAT(offers[at++], UnorderedElementsAre("bash", "zsh", "fish"));
    else
      EXPECT_THAT(offers[at++], UnorderedElementsAreArray(walked.subcommands)) << walked.line;
  }
}

// Zsh completes in its line editor only: here its parser reads the script, which must name everything.
TEST(Completion, ZshTakesTheScriptWhichNamesEverything) {
  const std::string script = Script("zsh");
  EXPECT_EQ(script.rfind("#compdef weir\n", 0), 0u);
  for (const Walked& walked : WalkTheApp()) {
    std::string function = "_weir_" + walked.line.substr(4);
    std::replace(function.begin(), function.end(), ' ', '_');
    const size_t begin = script.find("\n" + function + "() {");
    ASSERT_NE(begin, std::string::npos) << function;
    const std::string body = script.substr(begin, script.find("\n}\n", begin) - begin);
    for (const std::string& name : walked.subcommands) EXPECT_THAT(body, HasSubstr("'" + name + ":"));
    const std::string shared = script.substr(script.find(" shared=("));
    for (const std::string& name : walked.options)
      EXPECT_THAT(body + shared, ::testing::ContainsRegex(name + "=?\\[")) << walked.line;
  }
  if (!HasShell("zsh")) GTEST_SKIP() << "no zsh here, so its parser was not asked";
  const TempDir dir;
  Process zsh({"/usr/bin/env", "zsh", "-n", dir.Write("script", script)});
  EXPECT_EQ(zsh.Wait(), 0) << zsh.output();
  EXPECT_EQ(zsh.output(), "");
}

TEST(Completion, WhatStandsBeforeTheCursorDecides) {
  EXPECT_THAT(Bash("weir gen"), ElementsAre("generate"));
  EXPECT_THAT(Bash("weir --json --server 127.0.0.1:7070 sessions ex"), ElementsAre("export"));
  EXPECT_THAT(Bash("weir --server=gpu1:7070 sessions --timeout 3 sn"), ElementsAre("snapshot", "snapshots"));
  EXPECT_THAT(Bash("weir generate --mod"), ElementsAre("--model"));
  EXPECT_THAT(Bash("weir generate --no-st"), ElementsAre("--no-stats"));
  EXPECT_THAT(Bash("weir generate --max-to"), ElementsAre("--max-tokens"));
  EXPECT_THAT(Bash("weir sessions list --jso"), ElementsAre("--json"));
  EXPECT_THAT(Bash("weir sessions list --mod"), IsEmpty());  // of another command
  EXPECT_THAT(Bash("weir completion "), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(Bash("weir completion bash "), IsEmpty());
  // An option's value is no subcommand, and what stands behind -- is no option.
  EXPECT_THAT(Bash("weir --timeout sessions gen"), ElementsAre("generate"));
  EXPECT_THAT(Bash("weir generate -n "), IsEmpty());
  EXPECT_THAT(Bash("weir generate --max-tokens="), IsEmpty());
  EXPECT_THAT(Bash("weir generate -- --mod"), IsEmpty());
  EXPECT_THAT(Bash("weir generate gen"), IsEmpty());
  EXPECT_THAT(Bash("weir nonsense --mod"), IsEmpty());
}

TEST(Completion, FilesCompleteWhereAFileIsMeant) {
  const TempDir dir;
  dir.Write("story one.txt", "");
  dir.Write("story-two.txt", "");
  std::filesystem::create_directory(dir.File("stories"));
  const std::string begin = dir.File("stor");
  const auto all =
      UnorderedElementsAre(dir.File("story one.txt"), dir.File("story-two.txt"), dir.File("stories"));
  for (const char* line : {"weir generate --file ", "weir generate --file=", "weir generate -f ",
                           "weir --ca ", "weir info --api-key-file=", "weir --json sessions import ",
                           "weir sessions export -- some-id ", "weir sessions export some-id "})
    EXPECT_THAT(Bash(line + begin), all) << line;
  for (const char* line : {"weir generate ", "weir generate -m ", "weir --server ", "weir sessions get s "})
    EXPECT_THAT(Bash(line + begin), IsEmpty()) << line;
}

TEST(Completion, NamesComeFromTheServerThatTheLineNames) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "protobuf's headers lay out map fields otherwise here than its library, which parses text";
#endif
  ScriptedServer server;
  const std::string at = server.address();
  server.answers = {{"weir.v1.ListModelsResponse",
                     "models { name: 'models/tales-linear' } models { name: 'models/other' } "
                     "models { name: 'models/$(touch${IFS}evil)' }"},
                    {"weir.v1.ListSessionsResponse",
                     "sessions { name: 'sessions/tea' } sessions { name: 'sessions/milk' }"}};
  EXPECT_THAT(Bash("weir --server " + at + " generate -m "), ElementsAre("tales-linear", "other"));
  EXPECT_THAT(Bash("weir --server=" + at + " generate --model=ta"), ElementsAre("tales-linear"));
  EXPECT_THAT(Bash("weir generate --server " + at + " -s "), ElementsAre("tea", "milk"));
  EXPECT_THAT(Bash("weir sessions --server " + at + " export t"), ElementsAre("tea"));
  EXPECT_THAT(Bash("weir sessions --server " + at + " delete tea m"), ElementsAre("milk"));
  EXPECT_THAT(Bash("weir models --server " + at + " get o"), ElementsAre("other"));
}

TEST(Completion, AServerThatDoesNotAnswerIsNoWordOnTheScreen) {
  EXPECT_THAT(Bash("weir --server 127.0.0.1:1 generate -m "), IsEmpty());
  EXPECT_THAT(Bash("weir --server 127.0.0.1:1 sessions get "), IsEmpty());
  EXPECT_THAT(Bash("weir --server not:an:address sessions get "), IsEmpty());
  EXPECT_THAT(Bash("/no/such/weir --server 127.0.0.1:1 generate -m "), IsEmpty());
}

TEST(Completion, AnUnknownShellIsRefusedWithThoseThatThereAre) {
  const ChildResult result = RunWeir({"completion", "tcsh"});
  EXPECT_EQ(result.exit, 2);
  EXPECT_THAT(result.err, HasSubstr("bash, zsh, fish"));
}

}  // namespace
}  // namespace weir
