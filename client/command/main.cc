// weir: the command line client.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "CLI/CLI.hpp"
#include "client/command/app.h"
#include "client/command/exit_status.h"
#include "client/command/grpc_log.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/option_value.h"
#include "runtime/base/process.h"
#include "runtime/base/unknown_argument.h"

namespace weir {
namespace {

// For a command line that was refused: what its writer probably meant.
std::string Hint(const std::vector<std::string>& args) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  for (size_t i = 0; i < args.size(); ++i) {
    const bool with_number = args[i] == "--logprobs" && i + 1 < args.size() && is_number(args[i + 1]);
    if (with_number || args[i].rfind("--logprobs=", 0) == 0)
      return "; --logprobs takes no number, --top-logprobs N does";
  }
  return "";
}

// As it may be typed into a shell.
std::string ShellWord(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                          "_-./,:=@%+") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// For `status`, when all the output is on its way.
int Finish(Context* context, const absl::Status& status) {
  // A closed pipe explains whatever came after it.
  if (context->out.closed()) return kExitOk;
  if (!context->out.ok()) {
    context->Report(context->out.status());
    return kExitServerError;
  }
  if (context->signal() != 0 && status.code() == absl::StatusCode::kCancelled)
    return kExitSignal + context->signal();
  if (!status.ok()) context->Report(status);
  return ExitStatusOf(status);
}

int Run(Context* context, const std::vector<std::string>& args) {
  absl::Status status = context->action();
  if (ExitStatusOf(status) == kExitUsage) status = UsageError(std::string(status.message()) + Hint(args));
  return Finish(context, status);
}

int Main(int argc, char** argv) {
  NameShortages("weir", kExitServerError);
  KeepStandardDescriptors(argv);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error, like a full disk
  SilenceGrpcLog();
  const std::vector<std::string> args(argv + 1, argv + argc);
  Context context;
  for (const std::string& arg : args) context.command_line += " " + ShellWord(arg);
  if (const char* key = std::getenv("WEIR_API_KEY")) context.api_key = key;
  CLI::App app;
  BuildApp(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    std::ostringstream text;  // --help, --version
    app.exit(request, text, text);
    context.out.Write(text.str());
    return Finish(&context, absl::OkStatus());
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> rest = app.remaining();
    std::string what = ValueErrorText(app, error);
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !rest.empty())
      what = fmt::format("{} is no command", Quoted(rest.front()));
    else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
      what = UnknownArgument(app, rest);
    // Where the parser stopped before it, --json counts too.
    context.json = context.json || std::find(args.begin(), args.end(), "--json") != args.end();
    context.Report(UsageError(fmt::format("{}{}; see weir --help", what, Hint(args))));
    return kExitUsage;
  }
  return Run(&context, args);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
