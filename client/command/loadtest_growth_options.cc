#include "client/command/loadtest_growth_options.h"

#include <string>

#include "CLI/CLI.hpp"
#include "client/command/exit_status.h"
#include "client/command/loadtest_options.h"
#include "client/command/number_option.h"
#include "fmt/format.h"
#include "runtime/base/option_value.h"

namespace weir {
namespace {

constexpr NumberRange<int64_t> kPositions = {.low = 1, .high = 1'000'000'000'000};
constexpr NumberRange<int64_t> kSessions = {.low = 1, .high = 1'000'000};
constexpr NumberRange<int64_t> kItlTokens = {.low = 0, .high = 1'000'000};
constexpr NumberRange<int64_t> kPieces = {.low = 1, .high = 1'000'000};

}  // namespace

std::vector<CLI::Option*> AddGrowthOptions(CLI::App* app, LoadtestOptions* run) {
  GrowthOptions* growth = &run->growth;
  const std::string group = "Growth and capacity, in place of load unless that is asked for, too";
  AddNumberList<int64_t>(
      app, "--positions", "N[,N...]", kPositions, &growth->positions,
      "Bring sessions of each model to these positions, in rising order, and watch the server's memory: exit "
      "with 1 unless it stays constant, or grows as the shapes say where it has to.")
      ->group(group);
  std::vector<CLI::Option*> how = {
      AddNumberOption<int64_t>(
          app, "--sessions", "N", kSessions, [growth](int64_t v) { growth->sessions = v; },
          "With --positions: so many of each model. Default: 16."),
      app->add_option_function<std::string>(
             "--grow", [growth](const std::string& v) { growth->by_append = v == "append"; },
             "With --positions: tokens are appended, as a prompt is, or generated. Default: append.")
          ->check(OneOf({"append", "generate"}))
          ->type_name("HOW"),
      AddNumberOption<int64_t>(
          app, "--itl-tokens", "N", kItlTokens, [growth](int64_t v) { growth->latency_tokens = v; },
          "With --positions: generated in every session at each, for the latencies there. Default: 16."),
      AddNumberOption<int64_t>(
          app, "--piece", "N", kPieces, [growth](int64_t v) { growth->piece = v; },
          "With --positions: tokens of one turn on the way; memory is compared between turns. Default: some "
          "hundred turns from the first position to the last, of 4,096 tokens at most.")};
  for (CLI::Option* option : how) option->group(group);
  app->add_flag(
         "--capacity", run->capacity,
         "Open sessions of each model until the server refuses one, have each generate a token, and see that "
         "one more is refused, and accepted when one is deleted.")
      ->group(group);
  return how;
}

absl::Status CompleteGrowthOptions(const std::vector<CLI::Option*>& how_given, LoadtestOptions* run) {
  if (run->growth.positions.empty()) {
    for (const CLI::Option* option : how_given)
      if (option->count() > 0)
        return UsageError(
            fmt::format("{} is of the growth to positions: give --positions, too", option->get_name()));
    return absl::OkStatus();
  }
  run->growth.vocab_size = 1;  // of each model, later
  if (const absl::Status status = CheckGrowthOptions(run->growth); !status.ok())
    return UsageError(fmt::format("--positions: {}", std::string(status.message())));
  return absl::OkStatus();
}

}  // namespace weir
