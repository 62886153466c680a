// weir: the command line client.
#include <csignal>
#include <iostream>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/help.h"
#include "fmt/format.h"

namespace weir {
namespace {

void Report(const Context& context, const absl::Status& status) {
  Note(context.json ? ErrorJson(status) : "weir: " + ErrorLine(status));
}

void AddGlobalOptions(CLI::App* app, Context* context) {
  const std::string group = "Global options";
  app->add_option("--server", context->server,
                  "HOST:PORT, HOST (port 7070), [IPV6]:PORT or unix:PATH. Default: 127.0.0.1:7070.")
      ->envname("WEIR_SERVER")
      ->type_name("ADDRESS")
      ->group(group);
  app->add_flag("--json", context->json, "One JSON object per line instead of text.")->group(group);
  AddTimeOption(
      app, "--timeout", [context](absl::Duration timeout) { context->timeout = timeout; },
      "Give up when a call takes longer. Default: none; 5s for info.")
      ->group(group);
  app->set_help_flag("-h,--help", "Print this text, or that of a command.")->group(group);
  app->set_version_flag("--version", "weir " WEIR_VERSION, "Print the version.")->group(group);
}

int Run(Context* context) {
  const absl::Status status = context->action();
  // A closed pipe explains whatever came after it.
  if (context->out.closed()) return kExitOk;
  if (!context->out.ok()) {
    Report(*context, context->out.status());
    return kExitServerError;
  }
  if (context->signal() != 0 && status.code() == absl::StatusCode::kCancelled)
    return kExitSignal + context->signal();
  if (!status.ok()) Report(*context, status);
  return ExitStatusOf(status);
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  Context context;
  CLI::App app{std::string(kSummary), "weir"};
  auto formatter = std::make_shared<WrappedHelp>();
  formatter->column_width(30);
  app.formatter(formatter);
  app.fallthrough();
  app.require_subcommand(1);
  app.footer(std::string(kFooter));
  AddGlobalOptions(&app, &context);
  AddGenerateCommand(&app, &context);
  AddSessionsCommand(&app, &context);
  AddModelsCommand(&app, &context);
  AddTextCommands(&app, &context);
  AddInfoCommand(&app, &context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    app.exit(request);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    Note(fmt::format("weir: {}; see weir --help", error.what()));
    return kExitUsage;
  }
  return Run(&context);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
