#include "client/command/generate_options.h"

#include <charconv>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/number_option.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

// What the server takes whatever the model is; anything else is told here, without asking it.
constexpr NumberRange<float> kTemperatures = {.low = 0};
constexpr NumberRange<int32_t> kTopK = {.low = -1};
constexpr NumberRange<float> kProbabilities = {.low = 0, .high = 1};  // --top-p, --min-p
constexpr NumberRange<float> kRepetitionPenalties = {.low = 0.01f, .high = 100};
constexpr NumberRange<float> kPenalties = {.low = -2, .high = 2};   // --presence-penalty, --frequency-penalty
constexpr NumberRange<float> kBiases = {.low = -100, .high = 100};  // and -inf, a ban
constexpr NumberRange<uint64_t> kSeeds = {};
constexpr NumberRange<int64_t> kMaxTokens = {.low = 0, .high = 1'000'000'000'000};
constexpr NumberRange<int32_t> kMinTokens = {.low = 0};
constexpr NumberRange<int32_t> kTopLogprobs = {.low = 0, .high = 20};
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;

template <class T>
void Add(CLI::App* app, const std::string& name, const char* type, NumberRange<T> range,
         const std::string& group, std::function<void(std::type_identity_t<T>)> set,
         const std::string& help) {
  AddNumberOption<T>(app, name, type, range, std::move(set), help)->group(group);
}

// May be given several times, one value each; values may begin with a dash or a bracket.
void AddList(CLI::App* app, const std::string& name, const char* type, const std::string& group,
             std::function<void(const std::vector<std::string>&)> set, const std::string& help) {
  app->add_option_function<std::vector<std::string>>(name, std::move(set), help)
      ->type_name(type)
      ->group(group)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddBias(const std::string& text, v1::SamplingParams* sampling) {
  const size_t sign = text.find_first_of("=:");
  int32_t id = 0;
  float bias = 0;
  const char* const end = text.data() + text.size();
  const char* const middle = text.data() + std::min(sign, text.size());
  const auto id_end = std::from_chars(text.data(), middle, id);
  const auto bias_end = std::from_chars(std::min(middle + 1, end), end, bias);
  const bool in_range = id >= 0 && (kBiases.Has(bias) || bias == -std::numeric_limits<float>::infinity());
  if (sign == std::string::npos || id_end.ec != std::errc() || id_end.ptr != middle ||
      bias_end.ec != std::errc() || bias_end.ptr != end || !in_range)
    throw CLI::ValidationError(
        "--logit-bias",
        Quoted(text) + " is not of the form ID=BIAS with a BIAS from -100 to 100 (or -inf), such as 42=-100");
  (*sampling->mutable_logit_bias())[id] = bias;
}

void AddStops(const std::vector<std::string>& values, v1::StopConditions* stop) {
  if (values.size() > kMaxStops)
    throw CLI::ValidationError("--stop",
                               fmt::format("{} texts; at most {} are allowed", values.size(), kMaxStops));
  for (const std::string& value : values) {
    if (value.empty() || value.size() > kMaxStopBytes)
      throw CLI::ValidationError("--stop", fmt::format("{} has {} bytes; 1 to {} are allowed", Quoted(value),
                                                       value.size(), kMaxStopBytes));
    stop->add_strings(value);
  }
}

void AddStopTokens(const std::vector<std::string>& values, v1::StopConditions* stop) {
  for (const std::string& value : values) {
    const absl::StatusOr<std::vector<int32_t>> ids = ParseTokenIds(value);
    if (!ids.ok()) throw CLI::ValidationError("--stop-token", std::string(ids.status().message()));
    for (const int32_t id : *ids) stop->add_token_ids(id);
  }
}

}  // namespace

void AddSamplingOptions(CLI::App* app, v1::GenerateRequest* request) {
  const std::string group = "Sampling (unset: the model's generation_config.json)";
  v1::SamplingParams* s = request->mutable_sampling();
  Add(
      app, "-t,--temperature", "X", kTemperatures, group, [s](float v) { s->set_temperature(v); },
      "Spread of the choice; 0 always takes the most likely token.");
  Add(
      app, "--top-k", "N", kTopK, group, [s](int32_t v) { s->set_top_k(v); },
      "Choose among the N most likely tokens; 0 and -1 are off.");
  Add(
      app, "--top-p", "P", kProbabilities, group, [s](float v) { s->set_top_p(v); },
      "Choose among the fewest tokens that have probability P, 0 to 1, together; 1 is off.");
  Add(
      app, "--min-p", "P", kProbabilities, group, [s](float v) { s->set_min_p(v); },
      "Choose among tokens with at least P, 0 to 1, times the highest probability; 0 is off.");
  Add(
      app, "--repetition-penalty", "X", kRepetitionPenalties, group,
      [s](float v) { s->set_repetition_penalty(v); },
      "Make the last 256 tokens less likely, by division; 0.01 to 100, 1 is off.");
  Add(
      app, "--presence-penalty", "X", kPenalties, group, [s](float v) { s->set_presence_penalty(v); },
      "Subtracted once from the logit of each token generated before; -2 to 2, 0 is off.");
  Add(
      app, "--frequency-penalty", "X", kPenalties, group, [s](float v) { s->set_frequency_penalty(v); },
      "Subtracted for each time that a token was generated before; -2 to 2, 0 is off.");
  AddList(
      app, "--logit-bias", "ID=BIAS", group,
      [s](const std::vector<std::string>& values) {
        for (const std::string& value : values) AddBias(value, s);
      },
      "Add BIAS, -100 to 100, to the logit of a token; -100 bans it. Repeat for more.");
  Add(
      app, "--seed", "N", kSeeds, group, [s](uint64_t v) { s->set_seed(v); },
      "The same seed, prompt and settings give the same text. Default: chosen by the server.");
}

void AddStopOptions(CLI::App* app, v1::GenerateRequest* request) {
  const std::string group = "Stopping";
  v1::StopConditions* stop = request->mutable_stop();
  Add(
      app, "-n,--max-tokens", "N", kMaxTokens, group, [stop](int64_t v) { stop->set_max_tokens(v); },
      "Generate at most N tokens; 0 takes in the prompt only. Default: 256.");
  AddTimeOption(
      app, "--max-time", [stop](absl::Duration v) { SetDuration(v, stop->mutable_max_time()); },
      "End normally after so long; --timeout makes it an error. Default: none.")
      ->group(group);
  AddList(
      app, "--stop", "TEXT", group,
      [stop](const std::vector<std::string>& values) { AddStops(values, stop); },
      "Stop before TEXT, of 256 bytes at most. Repeat for more, at most 16.");
  AddList(
      app, "--stop-token", "IDS", group,
      [stop](const std::vector<std::string>& values) { AddStopTokens(values, stop); },
      "Stop at these token ids too, such as 1,15. Repeat for more.");
  app->add_flag_callback(
         "--ignore-eos", [stop] { stop->set_ignore_eos(true); }, "Never end the text by itself.")
      ->group(group);
  Add(
      app, "--min-tokens", "N", kMinTokens, group, [stop](int32_t v) { stop->set_min_tokens(v); },
      "Do not end the text by itself before N tokens. Default: 0.");
}

void AddOutputOptions(CLI::App* app, v1::GenerateRequest* request) {
  const std::string group = "Output";
  v1::OutputOptions* output = request->mutable_output();
  app->add_flag_callback(
         "--logprobs", [output] { output->set_logprobs(true); },
         "Print a line per token instead of the text: log-probability, id and piece, tabs between. Takes no "
         "number; --top-logprobs does.")
      ->disable_flag_override()
      ->group(group);
  Add(
      app, "--top-logprobs", "N", kTopLogprobs, group, [output](int32_t v) { output->set_top_logprobs(v); },
      "The same with the N most likely tokens, at most 20, as further columns.");
}

}  // namespace weir
