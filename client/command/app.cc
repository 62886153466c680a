#include "client/command/app.h"

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/help.h"
#include "client/connect.h"
#include "runtime/base/option_value.h"
#include "runtime/base/wrapped_help.h"

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
      ->check(NotEmpty())
      ->group(group);
  app->add_option("--cert", context->tls.cert_file, "Show this certificate to a server that asks: PEM.")
      ->envname("WEIR_CERT")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app->add_option("--key", context->tls.key_file, "The private key of --cert: PEM, without a passphrase.")
      ->envname("WEIR_KEY")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app->add_option("--api-key-file", context->api_key_file,
                  "File with the API key to send. Default: the key in WEIR_API_KEY, if any.")
      ->envname("WEIR_API_KEY_FILE")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app->add_flag("--json", context->json, "One JSON object per line instead of text.")->group(group);
  AddTimeOption(
      app, "--timeout", [context](absl::Duration timeout) { context->timeout = timeout; },
      "Give up when a call takes longer. Default: none; 5s for info. Connecting takes at most 5s anyway.")
      ->group(group);
  app->set_help_flag("-h,--help", "Print this text, or that of a command.")->group(group);
  app->set_version_flag("--version", "weir " WEIR_VERSION, "Print the version.")->group(group);
}

void PointToHelp(CLI::App* app) {
  for (CLI::App* sub : app->get_subcommands([](CLI::App*) { return true; })) {
    sub->footer(sub->get_footer() + std::string(kCommandFooter));
    PointToHelp(sub);
  }
}

}  // namespace

void BuildApp(CLI::App* app, Context* context) {
  app->name("weir");
  app->description(std::string(kSummary));
  auto formatter = std::make_shared<WrappedHelp>();
  formatter->column_width(30);
  app->formatter(formatter);
  app->fallthrough();
  app->require_subcommand(1);
  AddGlobalOptions(app, context);
  AddGenerateCommand(app, context);
  AddSessionsCommand(app, context);
  AddModelsCommand(app, context);
  AddTextCommands(app, context);
  AddInfoCommand(app, context);
  AddLoadtestCommand(app, context);
  AddCompletionCommand(app, context);
  PointToHelp(app);
  app->footer(std::string(kFooter));  // the last, as commands made after it would have it too
}

}  // namespace weir
