// weir: the command line client.
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/grpc_log.h"
#include "client/command/help.h"
#include "client/connect.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace weir {
namespace {

void AddGlobalOptions(CLI::App* app, Context* context) {
  const std::string group = "Global options";
  app->add_option_function<std::string>(
         "--server",
         [context](const std::string& address) {
           const absl::StatusOr<std::string> target = TargetOf(address);
           if (!target.ok())
             throw CLI::ValidationError("--server (or WEIR_SERVER)", std::string(target.status().message()));
           context->server = address;
         },
         "HOST:PORT, HOST (port 7070), [IPV6]:PORT or unix:PATH. Default: 127.0.0.1:7070.")
      ->envname("WEIR_SERVER")
      ->type_name("ADDRESS")
      ->group(group);
  app->add_flag("--tls", context->tls.enabled, "Speak TLS. The options --ca, --cert and --key say so too.")
      ->envname("WEIR_TLS")
      ->group(group);
  app->add_option("--ca", context->tls.ca_file,
                  "Trust servers whose certificate one of these signed: PEM. Default: those that this system "
                  "trusts.")
      ->envname("WEIR_CA")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--cert", context->tls.cert_file, "Show this certificate to a server that asks: PEM.")
      ->envname("WEIR_CERT")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--key", context->tls.key_file, "The private key of --cert: PEM, without a passphrase.")
      ->envname("WEIR_KEY")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--api-key-file", context->api_key_file,
                  "File with the API key to send. Default: the key in WEIR_API_KEY, if any.")
      ->envname("WEIR_API_KEY_FILE")
      ->type_name("FILE")
      ->group(group);
  app->add_flag("--json", context->json, "One JSON object per line instead of text.")->group(group);
  AddTimeOption(
      app, "--timeout", [context](absl::Duration timeout) { context->timeout = timeout; },
      "Give up when a call takes longer. Default: none; 5s for info. Connecting takes at most 5s anyway.")
      ->group(group);
  app->set_help_flag("-h,--help", "Print this text, or that of a command.")->group(group);
  app->set_version_flag("--version", "weir " WEIR_VERSION, "Print the version.")->group(group);
}

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

int Run(Context* context, const std::vector<std::string>& args) {
  absl::Status status = context->action();
  if (ExitStatusOf(status) == kExitUsage) status = UsageError(std::string(status.message()) + Hint(args));
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

int Main(int argc, char** argv) {
  KeepStandardDescriptors(argv);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error, like a full disk
  SilenceGrpcLog();
  const std::vector<std::string> args(argv + 1, argv + argc);
  Context context;
  if (const char* key = std::getenv("WEIR_API_KEY")) context.api_key = key;
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
    const std::vector<std::string> rest = app.remaining();
    const bool unknown_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !rest.empty();
    Note(fmt::format("weir: {}{}; see weir --help",
                     unknown_command ? fmt::format("{} is no command", Quoted(rest.front())) : error.what(),
                     Hint(args)));
    return kExitUsage;
  }
  return Run(&context, args);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
