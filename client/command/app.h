// The command line of `weir` as one tree: options, subcommands and their texts.
#pragma once

#include "CLI/App.hpp"
#include "client/command/context.h"

namespace weir {

// Into an empty `app`. Parsing it sets Context::action; both must live until that has run.
void BuildApp(CLI::App* app, Context* context);

}  // namespace weir
