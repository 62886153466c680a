// weir generate: streams a turn to standard output.
#include <unistd.h>

#include <memory>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/generate_options.h"
#include "client/command/help.h"
#include "client/command/number_option.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "google/protobuf/util/time_util.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

struct GenerateOptions {
  v1::GenerateRequest request;
  PromptOptions prompt;
  std::string model;
  std::string session;
  bool stats = false;
  CLI::Option* stats_given = nullptr;
};

std::string StopText(const v1::Finish& finish) {
  switch (finish.reason_case()) {
    case v1::Finish::kEosTokenId:
      return fmt::format("end of sequence (token {})", finish.eos_token_id());
    case v1::Finish::kStopTokenId:
      return fmt::format("stop token {}", finish.stop_token_id());
    case v1::Finish::kStopString:
      return fmt::format("stop string \"{}\"", Escaped(finish.stop_string()));
    case v1::Finish::kMaxTokens:
      return fmt::format("max_tokens {}", finish.max_tokens());
    case v1::Finish::kContextLimit:
      return fmt::format("context limit {}", finish.context_limit());
    case v1::Finish::kTimeLimit:
      return "time limit " + google::protobuf::util::TimeUtil::ToString(finish.time_limit());
    case v1::Finish::REASON_NOT_SET:
      break;
  }
  return "unknown";
}

// `first_tokens`: tokens of the first delta that had any. One message may carry many, so the rate counts what
// came after it; it is left out when nothing did.
std::string Summary(const GenerateResult& result, int64_t first_tokens) {
  const v1::Usage& usage = result.finish.usage();
  std::string line = fmt::format("{} tokens", usage.generated_tokens());
  const int64_t later_tokens = usage.generated_tokens() - first_tokens;
  if (first_tokens > 0) {
    const double seconds = absl::ToDoubleSeconds(result.elapsed - result.time_to_first_token);
    if (later_tokens > 0 && seconds > 0)
      line += fmt::format(", {:.1f} tok/s", static_cast<double>(later_tokens) / seconds);
    line += fmt::format(", first after {:.0f} ms", absl::ToDoubleMilliseconds(result.time_to_first_token));
  }
  line += fmt::format("; prompt {} tokens", usage.prompt_tokens());
  if (result.prompt_info.reused_tokens() > 0)
    line += fmt::format(" after {} kept", result.prompt_info.reused_tokens());
  return line + fmt::format("; stopped by {}; {}, seed {}", StopText(result.finish),
                            result.prompt_info.model(), result.prompt_info.seed());
}

// log-probability, id, piece, then `id:log-probability:piece` of each alternative.
std::string LogprobLines(const v1::Delta& delta) {
  std::string lines;
  for (const v1::TokenLogprob& token : delta.logprobs()) {
    lines += fmt::format("{:.6g}\t{}\t{}", token.logprob(), token.token_id(), Escaped(token.piece()));
    for (const v1::TokenLogprob& other : token.top())
      lines += fmt::format("\t{}:{:.6g}:{}", other.token_id(), other.logprob(), Escaped(other.piece()));
    lines += "\n";
  }
  return lines;
}

absl::Status RunGenerate(const GenerateOptions& options, Context* context) {
  v1::GenerateRequest request = options.request;
  const v1::StopConditions& stop = request.stop();
  if (stop.has_max_tokens() && stop.min_tokens() > stop.max_tokens())
    return UsageError(
        fmt::format("--min-tokens {} is more than --max-tokens {}", stop.min_tokens(), stop.max_tokens()));
  request.set_model(ModelResource(options.model));
  request.set_session(SessionResource(options.session));
  WEIR_ASSIGN_OR_RETURN(std::optional<v1::Prompt> prompt,
                        ReadPrompt(options.prompt, !options.session.empty()));
  if (prompt) *request.mutable_prompt() = *std::move(prompt);
  WEIR_ASSIGN_OR_RETURN(const WeirClient client, context->Connect());

  const bool lines = request.output().logprobs() || request.output().has_top_logprobs();
  bool text_written = false;
  int64_t first_tokens = 0;
  const absl::StatusOr<GenerateResult> result = client.GenerateEvents(
      request,
      [&](const v1::GenerateResponse& event) {
        if (first_tokens == 0) first_tokens = event.delta().token_ids_size();
        if (context->json) {
          context->WriteJson(event);
        } else if (lines) {
          context->out.Write(LogprobLines(event.delta()));
        } else if (!event.delta().text().empty()) {
          context->out.Write(event.delta().text());
          text_written = true;
        }
        // A reader that went away wants no more text, so the turn ends too.
        if (!context->out.ok()) context->cancel()->Cancel();
      },
      context->cancel());
  if (!context->json && !lines && (text_written || result.ok())) context->out.Write("\n");
  if (!result.ok()) return result.status();
  const bool stats =
      options.stats_given->count() > 0 ? options.stats : IsTerminal(STDERR_FILENO) && !context->json;
  if (stats) Note(Summary(*result, first_tokens));
  return absl::OkStatus();
}

}  // namespace

void AddGenerateCommand(CLI::App* app, Context* context) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* sub = app->add_subcommand("generate", "Stream the continuation of a prompt.");
  AddPromptOptions(sub, &options->prompt, "PROMPT");
  AddModelOption(sub, &options->model)
      ->description(
          "The model, with or without models/. Not needed with a session, or when the server holds only "
          "one.");
  const std::string group = "Session";
  sub->add_option(
         "-s,--session", options->session,
         "Append the prompt to this session, which keeps prompt and output. Without a prompt, generation "
         "goes on from where it stands.")
      ->type_name("SESSION")
      ->group(group);
  sub->add_option_function<std::string>(
         "--etag", [options](const std::string& v) { options->request.set_etag(v); },
         "Refuse the turn unless the session's etag is this one.")
      ->type_name("ETAG")
      ->group(group);
  AddNumberOption<int64_t>(
      sub, "--expected-position", "N", {.low = 0},
      [options](int64_t v) { options->request.set_expected_position(v); },
      "Refuse the turn unless the session stands at this position.")
      ->group(group);
  AddStopOptions(sub, &options->request);
  AddSamplingOptions(sub, &options->request);
  AddOutputOptions(sub, &options->request);
  options->stats_given =
      sub->add_flag("--stats,!--no-stats", options->stats,
                    "One line about tokens, speed and the reason of the end on standard error. "
                    "Default: when that is a terminal.")
          ->group("Output");
  sub->footer(std::string(kGenerateFooter));
  sub->callback([options, context] { context->action = [=] { return RunGenerate(*options, context); }; });
}

}  // namespace weir
