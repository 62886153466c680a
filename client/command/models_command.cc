// weir models: what the server holds.
#include <memory>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/help.h"
#include "client/command/json.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr char kRow[] = "{:<32} {:<18} {:>12} {:<6} {:>10} {}";  // of the list

std::string ContextText(const v1::Model& model) {
  return model.context_limit() == 0 ? "unlimited" : std::to_string(model.context_limit());
}

std::string ModelText(const v1::Model& model) {
  return fmt::format(
      "name:            {}\narchitecture:    {}\nmixer:           {}\nparameter_count: {}\nweight_bytes:    "
      "{}\n"
      "weight_dtype:    {}\nvocab_size:      {}\ncontext_limit:   {}\nstate:           {}\neos_token_ids:   "
      "{}\n",
      model.name(), model.architecture(), model.mixer(), model.parameter_count(), model.weight_bytes(),
      model.weight_dtype(), model.vocab_size(), ContextText(model), StateText(model.state()),
      fmt::join(model.eos_token_ids(), " "));
}

absl::Status RunGet(const std::string& name, Context* context) {
  v1::GetModelRequest request;
  request.set_name(ModelResource(name));
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::Model model, client.GetModel(request, context->cancel()));
  if (context->json)
    context->WriteJson(model);
  else
    context->out.Write(ModelText(model));
  return absl::OkStatus();
}

absl::Status RunList(Context* context) {
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  v1::ListModelsRequest request;
  do {
    WEIR_ASSIGN_OR_RETURN(const v1::ListModelsResponse page, client.ListModels(request, context->cancel()));
    if (!context->json && request.page_token().empty())
      context->out.WriteLine(fmt::format(kRow, "NAME", "MIXER", "PARAMETERS", "DTYPE", "CONTEXT", "STATE"));
    for (const v1::Model& model : page.models()) {
      if (context->json)
        context->WriteJson(model);
      else
        context->out.WriteLine(fmt::format(kRow, model.name(), model.mixer(), model.parameter_count(),
                                           model.weight_dtype(), ContextText(model),
                                           StateText(model.state())));
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && context->out.ok());
  return absl::OkStatus();
}

}  // namespace

void AddModelsCommand(CLI::App* app, Context* context) {
  CLI::App* group = app->add_subcommand("models", "List the models that the server holds.");
  group->require_subcommand(0, 1);
  group->footer(std::string(kModelsFooter));
  CLI::App* list = group->add_subcommand("list", "Print a line per model; the same as `weir models`.");
  CLI::App* get = group->add_subcommand("get", "Print all about one model.");
  auto name = std::make_shared<std::string>();
  get->add_option("MODEL", *name, "The model, with or without models/.")->required()->type_name("");
  const auto choose_list = [context] { context->action = [context] { return RunList(context); }; };
  list->callback(choose_list);
  get->callback([name, context] { context->action = [=] { return RunGet(*name, context); }; });
  group->callback([group, choose_list] {
    if (group->get_subcommands().empty()) choose_list();
  });
}

}  // namespace weir
