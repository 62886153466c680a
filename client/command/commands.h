// The subcommands, one function per group; each adds its parser and sets Context::action when it is chosen.
#pragma once

#include <functional>
#include <string>

#include "CLI/App.hpp"
#include "client/command/context.h"
#include "weir/v1/models.pb.h"

namespace weir {

void AddGenerateCommand(CLI::App* app, Context* context);
void AddSessionsCommand(CLI::App* app, Context* context);
// Those of `sessions` that move state: snapshots, rollback, export, import; and update.
absl::Status GetSnapshot(const std::string& name, Context* context);
void AddSessionStateCommands(CLI::App* group, Context* context);
void AddModelsCommand(CLI::App* app, Context* context);
void AddTextCommands(CLI::App* app, Context* context);  // tokenize, detokenize, score
void AddInfoCommand(CLI::App* app, Context* context);
void AddLoadtestCommand(CLI::App* app, Context* context);
void AddCompletionCommand(CLI::App* app, Context* context);

CLI::Option* AddModelOption(CLI::App* app, std::string* model);
// An option whose value is a time; `set` receives a valid one.
CLI::Option* AddTimeOption(CLI::App* app, const std::string& name, std::function<void(absl::Duration)> set,
                           const std::string& help);

void SetDuration(absl::Duration duration, google::protobuf::Duration* out);

// What one session of a model costs.
std::string StateText(const v1::StateCost& state);

// Bytes for one line of a terminal: backslashes and all but printable ASCII escaped.
std::string Escaped(std::string_view bytes);

}  // namespace weir
