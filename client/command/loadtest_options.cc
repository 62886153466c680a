#include "client/command/loadtest_options.h"

#include <cmath>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/exit_status.h"
#include "client/command/loadtest_growth_options.h"
#include "client/command/number_option.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/option_value.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr NumberRange<int64_t> kUsers = {.low = 1, .high = 100'000};
constexpr NumberRange<double> kRates = {.low = 0.001, .high = 1'000'000};  // per second
constexpr NumberRange<double> kWeights = {.low = 0.001, .high = 1'000'000};
constexpr NumberRange<int64_t> kRequests = {.low = 1, .high = 1'000'000'000};
constexpr NumberRange<int> kTurns = {.low = 1, .high = 1'000'000};
constexpr NumberRange<int> kConnections = {.low = 1, .high = 1'000};
constexpr NumberRange<uint64_t> kSeeds = {};
constexpr int64_t kDefaultPromptTokens = 64;
constexpr int64_t kDefaultOutputTokens = 64;
constexpr absl::Duration kIdleSessionTtl = absl::Hours(1);
constexpr absl::Duration kDefaultDuration = absl::Seconds(30);

void AddWeightedModel(const std::string& text, LoadtestCommandOptions* options) {
  const size_t sign = text.rfind('=');
  WeightedModel model = {.name = text.substr(0, sign), .weight = 1};
  options->weight_given |= sign != std::string::npos;
  if (sign != std::string::npos)
    model.weight = ParseNumber<double>("-m,--model", text.substr(sign + 1), kWeights);
  if (model.name.empty())
    throw CLI::ValidationError("-m,--model", Quoted(text) + " names no model; write MODEL or MODEL=WEIGHT");
  options->run.models.push_back(std::move(model));
}

void AddModels(CLI::App* app, LoadtestCommandOptions* options) {
  const std::string group = "Models";
  LoadtestOptions* run = &options->run;
  app->add_option_function<std::vector<std::string>>(
         "-m,--model",
         [options](const std::vector<std::string>& values) {
           for (const std::string& value : values) AddWeightedModel(value, options);
         },
         "The model; not needed when the server holds only one. Repeat it for requests to several at the "
         "same time: "
         "MODEL=WEIGHT sets a share, 1 unless given.")
      ->type_name("MODEL")
      ->group(group)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option_function<std::string>(
         "--compare",
         [run](const std::string& text) {
           for (const std::string& name : SplitAtCommas(text)) {
             if (name.empty())
               throw CLI::ValidationError("--compare", Quoted(text) + " has an empty name; write A,B,C");
             run->compare.push_back(name);
           }
         },
         "Measure these models in turn, each by itself, with the same load: names, or mixers that one model "
         "has, such as "
         "linear,softmax.")
      ->type_name("NAMES")
      ->group(group);
}

void AddLoad(CLI::App* app, LoadtestCommandOptions* options) {
  const std::string group = "Load";
  LoadtestOptions* run = &options->run;
  options->concurrency_given =
      AddNumberList<int64_t>(
          app, "-c,--concurrency", "N[,N...]", kUsers, &run->concurrency,
          "Closed loop: so many users, each sends its next request when the last one has ended. Several "
          "numbers are measured in turn. Default: 8.")
          ->group(group);
  options->rate_given =
      AddNumberList<double>(app, "--rate", "R[,R...]", kRates, &run->rates,
                            "Open loop: so many requests (or conversations, with --turns) become due per "
                            "second, whatever the server does.")
          ->group(group);
  options->arrivals_given = app->add_option_function<std::string>(
                                   "--arrivals",
                                   [run](const std::string& kind) {
                                     run->open_arrivals =
                                         kind == "constant" ? ArrivalKind::kConstant : ArrivalKind::kPoisson;
                                   },
                                   "With --rate: random gaps, as of many independent users (poisson), or "
                                   "even ones (constant). Default: poisson.")
                                ->check(OneOf({"poisson", "constant"}))
                                ->type_name("KIND")
                                ->group(group);
  options->duration_given =
      AddTimeOption(
          app, "-d,--duration", [run](absl::Duration v) { run->phase.duration = v; },
          "Start nothing new after so long, warm-up included. Default: 30s, none with --requests.")
          ->group(group);
  options->requests_given =
      AddNumberOption<int64_t>(
          app, "-n,--requests", "N", kRequests, [run](int64_t v) { run->phase.conversations = v; },
          "Start so many requests (or conversations, with --turns) and no more.")
          ->group(group);
  CLI::Option* warmup = AddTimeOption(
      app, "--warmup", [run](absl::Duration v) { run->phase.warmup = v; },
      "Requests that are due within so long after the start do not count. Default: none.");
  options->drain_given = AddTimeOption(
      app, "--drain", [run](absl::Duration v) { run->phase.drain = v; },
      "How long requests may go on after --duration before they are cancelled. Default: 30s.");
  for (CLI::Option* option : {warmup, options->drain_given})
    options->of_traffic.push_back(option->group(group));
  AddNumberOption<int>(
      app, "--connections", "N", kConnections, [options](int v) { options->connections = v; },
      "Connections over which requests are spread; more are opened where each has 1,000. Default: 4.")
      ->group(group);
}

CLI::Option* AddLength(CLI::App* app, const std::string& name, LengthSpec* out, const std::string& help) {
  return app
      ->add_option_function<std::string>(
          name,
          [name, out](const std::string& text) {
            const absl::StatusOr<LengthSpec> spec = ParseLengthSpec(text);
            if (!spec.ok()) throw CLI::ValidationError(name, std::string(spec.status().message()));
            *out = *spec;
          },
          help)
      ->type_name("LENGTH");
}

void AddRequests(CLI::App* app, LoadtestCommandOptions* options) {
  const std::string group = "Requests";
  LoadtestOptions* run = &options->run;
  run->workload.prompt_tokens = {LengthSpec::Kind::kFixed, kDefaultPromptTokens, kDefaultPromptTokens};
  run->workload.output_tokens = {LengthSpec::Kind::kFixed, kDefaultOutputTokens, kDefaultOutputTokens};
  CLI::Option* prompts =
      app->add_option("--prompts", options->prompts_file,
                      "Take prompts from a file, one a line, in turn; - is standard input.")
          ->type_name("FILE")
          ->check(NotEmpty());
  options->prompt_tokens_given = AddLength(app, "--prompt-tokens", &run->workload.prompt_tokens,
                                           "Length of synthetic prompts, in tokens. Default: 64.");
  CLI::Option* output_tokens =
      AddLength(app, "--output-tokens", &run->workload.output_tokens, "Tokens to generate. Default: 64.");
  CLI::Option* turns = AddNumberOption<int>(
      app, "--turns", "N", kTurns, [run](int v) { run->workload.turns = v; },
      "Hold conversations of N turns, each in a session that is created before and deleted after. Default: "
      "1, without sessions.");
  options->think_given = AddTimeOption(
      app, "--think", [run](absl::Duration v) { run->phase.think = v; },
      "With --turns: from the end of a turn to the next one. Default: none.");
  for (CLI::Option* option :
       {prompts, options->prompt_tokens_given, output_tokens, turns, options->think_given})
    options->of_traffic.push_back(option->group(group));
  options->session_ttl_given = AddTimeOption(
      app, "--session-ttl", [options](absl::Duration v) { options->session_ttl = v; },
      "With --turns, --positions or --capacity: after so long without use the server drops a session of this "
      "test. Default: 1h with --positions or --capacity, else the server's.");
  options->session_ttl_given->group(group);
  AddNumberOption<uint64_t>(
      app, "--seed", "N", kSeeds, [run](uint64_t v) { run->workload.seed = v; },
      "Prompts, lengths, arrivals and sampling are functions of it. Default: 0.")
      ->group(group);
}

void AddVerdict(CLI::App* app, LoadtestCommandOptions* options) {
  LoadtestOptions* run = &options->run;
  GoodputLimits* limits = &run->phase.limits;
  for (CLI::Option* option :
       {AddTimeOption(
            app, "--limit-ttft", [limits](absl::Duration v) { limits->ttft = v; },
            "Longest time to the first token of a request that counts as good. Default: none."),
        AddTimeOption(
            app, "--limit-tpot", [limits](absl::Duration v) { limits->tpot = v; },
            "Longest time per further token of one. Default: none."),
        AddTimeOption(
            app, "--limit-e2e", [limits](absl::Duration v) { limits->e2e = v; },
            "Longest time of one as a whole. Default: none."),
        app->add_flag("--fail-on-empty", run->fail_on_empty,
                      "Exit with 1 when a stream ended well without a token."),
        app->add_flag("--fail-on-error", run->fail_on_error, "Exit with 1 when a request failed.")})
    options->of_traffic.push_back(option->group("Goodput and verdict"));
}

void AddOutput(CLI::App* app, LoadtestCommandOptions* options) {
  const std::string group = "Output";
  app->add_option(
         "--json", options->json_file,
         "Write the report as JSON. Without FILE, or with -, it goes to standard output, in place of the "
         "table.")
      ->type_name("FILE")
      ->expected(0, 1)
      ->default_str("-")
      ->check(NotEmpty())
      ->group(group);
  app->add_option("--csv", options->csv_file,
                  "Write a table for spreadsheets, a line per model and phase; - is standard output.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app->add_option(
         "--html", options->html_file,
         "Write one page with charts, for a browser; - is standard output. It needs no network and no "
         "other file.")
      ->type_name("FILE")
      ->check(NotEmpty())
      ->group(group);
  app->add_flag("-q,--quiet", options->quiet, "No progress on standard error.")->group(group);
}

// What a run would not look at is a mistake, not a wish.
absl::Status CheckThatAllAreUsed(const LoadtestCommandOptions& options) {
  const auto given = [](const CLI::Option* option) { return option->count() > 0; };
  const LoadtestOptions& run = options.run;
  if (!run.traffic) {
    const char* phase = run.growth.positions.empty() ? "--capacity"
                        : run.capacity               ? "--positions with --capacity"
                                                     : "--positions";
    const auto refuse = [&](const std::string& what) {
      return UsageError(
          fmt::format("{} is of traffic, and {} makes none: leave it out, or ask for traffic, too, "
                      "with --concurrency, --rate, --duration or --requests",
                      what, phase));
    };
    for (const CLI::Option* option : options.of_traffic)
      if (given(option)) return refuse(option->get_name());
    if (options.weight_given) return refuse("the weight of -m MODEL=WEIGHT");
  }
  const bool sessions = run.capacity || !run.growth.positions.empty() || run.workload.turns > 1;
  if (given(options.session_ttl_given) && !sessions)
    return UsageError("--session-ttl is of sessions: give --turns, --positions or --capacity, too");
  if (given(options.drain_given) && given(options.requests_given) && !given(options.duration_given))
    return UsageError("--drain begins when --duration is over: give a --duration, too");
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

void AddLoadtestOptions(CLI::App* app, LoadtestCommandOptions* options) {
  AddModels(app, options);
  AddLoad(app, options);
  AddRequests(app, options);
  AddVerdict(app, options);
  options->growth_given = AddGrowthOptions(app, &options->run);
  AddOutput(app, options);
}

absl::Status CompleteLoadtestOptions(LoadtestCommandOptions* options) {
  LoadtestOptions& run = options->run;
  const auto given = [](const CLI::Option* option) { return option->count() > 0; };
  if (!run.models.empty() && !run.compare.empty())
    return UsageError("-m sends to its models at the same time and --compare in turn: give one of the two");
  if (given(options->concurrency_given) && given(options->rate_given))
    return UsageError("--concurrency is of the closed loop and --rate of the open one: give one of the two");
  if (given(options->arrivals_given) && !given(options->rate_given))
    return UsageError("--arrivals is of the open loop: give a --rate, too");
  if (!options->prompts_file.empty() && given(options->prompt_tokens_given))
    return UsageError("--prompts has lengths of its own: leave out --prompt-tokens");
  if (given(options->think_given) && run.workload.turns == 1)
    return UsageError("--think is between the turns of a session: give --turns, too");
  WEIR_RETURN_IF_ERROR(CompleteGrowthOptions(options->growth_given, &run));
  // While others are made, or have their turn, a session does nothing for long.
  const bool idle = run.capacity || !run.growth.positions.empty();
  if (idle)
    run.traffic = given(options->concurrency_given) || given(options->rate_given) ||
                  given(options->duration_given) || given(options->requests_given);
  WEIR_RETURN_IF_ERROR(CheckThatAllAreUsed(*options));
  if (idle && options->session_ttl == absl::ZeroDuration()) options->session_ttl = kIdleSessionTtl;
  if (!given(options->duration_given) && !given(options->requests_given))
    run.phase.duration = kDefaultDuration;
  if (run.phase.warmup >= run.phase.duration)
    return UsageError(fmt::format("--warmup {} leaves nothing of --duration {}: make the duration longer",
                                  absl::FormatDuration(run.phase.warmup),
                                  absl::FormatDuration(run.phase.duration)));
  if (options->prompts_file.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadAll(options->prompts_file));
  absl::StatusOr<std::vector<std::string>> lines = PromptLines(text, options->prompts_file);
  if (!lines.ok()) return UsageError(fmt::format("--prompts {}", std::string(lines.status().message())));
  run.workload.prompts = *std::move(lines);
  return absl::OkStatus();
}

}  // namespace weir
