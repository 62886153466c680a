// weir loadtest: measures a server under load.
#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"

namespace weir {

void AddLoadtestCommand(CLI::App* app, Context* context) {
  CLI::App* sub = app->add_subcommand("loadtest", "Measure the server under load.");
  sub->callback([context] { context->action = [] { return UsageError("loadtest: nothing to run"); }; });
}

}  // namespace weir
