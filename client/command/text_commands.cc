// weir tokenize, detokenize and score.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/help.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

struct TextOptions {
  std::string model;
  PromptOptions prompt;
  std::vector<std::string> ids;
  bool lines = false;
};

absl::Status RunTokenize(const TextOptions& options, Context* context) {
  WEIR_ASSIGN_OR_RETURN(const std::optional<v1::Prompt> prompt,
                        ReadPrompt(options.prompt, /*may_be_missing=*/false));
  if (prompt->has_token_ids()) return UsageError("tokenize takes text; for token ids there is detokenize");
  v1::TokenizeRequest request;
  request.set_model(ModelResource(options.model));
  request.set_text(prompt->text());
  if (prompt->has_add_special_tokens()) request.set_add_special_tokens(prompt->add_special_tokens());
  if (prompt->has_parse_special()) request.set_parse_special(prompt->parse_special());
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::TokenizeResponse response, client.Tokenize(request, context->cancel()));
  if (context->json) {
    context->WriteJson(response);
  } else if (options.lines) {
    for (int i = 0; i < response.token_ids_size(); ++i)
      context->out.WriteLine(fmt::format("{}\t{}", response.token_ids(i),
                                         i < response.pieces_size() ? Escaped(response.pieces(i)) : ""));
  } else {
    context->out.WriteLine(fmt::format("{}", fmt::join(response.token_ids(), " ")));
  }
  return absl::OkStatus();
}

absl::Status RunDetokenize(const TextOptions& options, Context* context) {
  std::string text = fmt::format("{}", fmt::join(options.ids, " "));
  if (options.ids.empty() || text == "-") {
    WEIR_ASSIGN_OR_RETURN(text, ReadAll("-"));
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseTokenIds(text));
  v1::DetokenizeRequest request;
  request.set_model(ModelResource(options.model));
  request.mutable_token_ids()->Assign(ids.begin(), ids.end());
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::DetokenizeResponse response, client.Detokenize(request, context->cancel()));
  if (context->json)
    context->WriteJson(response);
  else
    context->out.WriteLine(response.raw());
  return absl::OkStatus();
}

absl::Status RunScore(const TextOptions& options, Context* context) {
  v1::ScoreRequest request;
  request.set_model(ModelResource(options.model));
  WEIR_ASSIGN_OR_RETURN(const std::optional<v1::Prompt> prompt,
                        ReadPrompt(options.prompt, /*may_be_missing=*/false));
  *request.mutable_prompt() = *prompt;
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());
  WEIR_ASSIGN_OR_RETURN(const v1::ScoreResponse response, client.Score(request, context->cancel()));
  if (context->json) {
    context->WriteJson(response);
    return absl::OkStatus();
  }
  for (int i = 0; options.lines && i < response.logprobs_size() && i + 1 < response.token_ids_size(); ++i) {
    // A server of before there were ranks sends none.
    const std::string rank = i < response.ranks_size() ? std::to_string(response.ranks(i)) : "-";
    context->out.WriteLine(
        fmt::format("{:.6g}\t{}\t{}", response.logprobs(i), response.token_ids(i + 1), rank));
  }
  context->out.WriteLine(fmt::format("tokens:        {}", response.logprobs_size()));
  context->out.WriteLine(fmt::format("total_logprob: {:.6f}", response.total_logprob()));
  context->out.WriteLine(fmt::format("perplexity:    {:.6g}", response.perplexity()));
  if (response.bits_per_byte() > 0)  // ids of a model without a tokenizer have no bytes
    context->out.WriteLine(fmt::format("bits_per_byte: {:.6g}", response.bits_per_byte()));
  return absl::OkStatus();
}

CLI::App* AddSub(CLI::App* app, const char* name, const char* help,
                 absl::Status (*run)(const TextOptions&, Context*), Context* context,
                 const std::shared_ptr<TextOptions>& options) {
  CLI::App* sub = app->add_subcommand(name, help);
  AddModelOption(sub, &options->model);
  sub->callback([=] { context->action = [=] { return run(*options, context); }; });
  return sub;
}

}  // namespace

void AddTextCommands(CLI::App* app, Context* context) {
  // One set of options each: what one parser fills must not reach another.
  auto for_tokenize = std::make_shared<TextOptions>();
  CLI::App* tokenize =
      AddSub(app, "tokenize", "Print the token ids of a text.", RunTokenize, context, for_tokenize);
  AddPromptOptions(tokenize, &for_tokenize->prompt, "TEXT");
  tokenize->add_flag("--pieces", for_tokenize->lines,
                     "A line per token: id, tab, the token's bytes escaped.");
  tokenize->footer(std::string(kTokenizeFooter));

  auto for_detokenize = std::make_shared<TextOptions>();
  CLI::App* detokenize = AddSub(app, "detokenize", "Print the bytes of token ids, then a newline.",
                                RunDetokenize, context, for_detokenize);
  detokenize->add_option("IDS", for_detokenize->ids, "Token ids; none or - reads them from standard input.")
      ->type_name("");
  detokenize->footer(std::string(kDetokenizeFooter));

  auto for_score = std::make_shared<TextOptions>();
  CLI::App* score =
      AddSub(app, "score", "Print log-probability and perplexity of a text.", RunScore, context, for_score);
  AddPromptOptions(score, &for_score->prompt, "TEXT");
  score->add_flag("--per-token", for_score->lines,
                  "Before that a line per token: log-probability, tab, id, tab, rank; 1 is the most likely.");
  score->footer(std::string(kScoreFooter));
}

}  // namespace weir
