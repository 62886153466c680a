// weir completion: a script that completes this command in a shell.
#include <memory>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/help.h"
#include "runtime/base/completion.h"
#include "runtime/base/option_value.h"

namespace weir {

void AddCompletionCommand(CLI::App* app, Context* context) {
  CLI::App* sub =
      app->add_subcommand("completion", "Print the script that completes this command in a shell.");
  auto shell = std::make_shared<std::string>();
  sub->add_option("SHELL", *shell, "The shell: bash, zsh or fish.")
      ->required()
      ->check(OneOf(kCompletionShells))
      ->type_name("");
  sub->footer(std::string(kCompletionFooter));
  sub->callback([=] {
    context->action = [=] {
      context->out.Write(CompletionScript(*app, *shell, "weir completion " + *shell));
      return absl::OkStatus();
    };
  });
}

}  // namespace weir
