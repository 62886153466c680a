#include "client/command/generate_options.h"

#include <charconv>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/command/commands.h"
#include "client/command/number_option.h"
#include "client/command/prompt_input.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

template <class T>
void Add(CLI::App* app, const std::string& name, const char* type, const std::string& group,
         std::function<void(T)> set, const std::string& help) {
  AddNumberOption<T>(app, name, type, std::move(set), help)->group(group);
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
  if (sign == std::string::npos || id_end.ec != std::errc() || id_end.ptr != middle ||
      bias_end.ec != std::errc() || bias_end.ptr != end)
    throw CLI::ValidationError("--logit-bias", Quoted(text) + " is not of the form ID=BIAS, such as 42=-100");
  (*sampling->mutable_logit_bias())[id] = bias;
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
  Add<float>(
      app, "-t,--temperature", "X", group, [s](float v) { s->set_temperature(v); },
      "Spread of the choice; 0 always takes the most likely token.");
  Add<int32_t>(
      app, "--top-k", "N", group, [s](int32_t v) { s->set_top_k(v); },
      "Choose among the N most likely tokens; 0 is off.");
  Add<float>(
      app, "--top-p", "P", group, [s](float v) { s->set_top_p(v); },
      "Choose among the fewest tokens that have probability P together; 1 is off.");
  Add<float>(
      app, "--min-p", "P", group, [s](float v) { s->set_min_p(v); },
      "Choose among tokens with at least P times the highest probability; 0 is off.");
  Add<float>(
      app, "--repetition-penalty", "X", group, [s](float v) { s->set_repetition_penalty(v); },
      "Make the last 256 tokens less likely, by division; 1 is off.");
  Add<float>(
      app, "--presence-penalty", "X", group, [s](float v) { s->set_presence_penalty(v); },
      "Subtracted once from the logit of each token generated before; 0 is off.");
  Add<float>(
      app, "--frequency-penalty", "X", group, [s](float v) { s->set_frequency_penalty(v); },
      "Subtracted for each time that a token was generated before; 0 is off.");
  AddList(
      app, "--logit-bias", "ID=BIAS", group,
      [s](const std::vector<std::string>& values) {
        for (const std::string& value : values) AddBias(value, s);
      },
      "Add BIAS, -100 to 100, to the logit of a token; -100 bans it. Repeat for more.");
  Add<uint64_t>(
      app, "--seed", "N", group, [s](uint64_t v) { s->set_seed(v); },
      "The same seed, prompt and settings give the same text. Default: chosen by the server.");
}

void AddStopOptions(CLI::App* app, v1::GenerateRequest* request) {
  const std::string group = "Stopping";
  v1::StopConditions* stop = request->mutable_stop();
  Add<int64_t>(
      app, "-n,--max-tokens", "N", group, [stop](int64_t v) { stop->set_max_tokens(v); },
      "Generate at most N tokens; 0 takes in the prompt only. Default: 256.");
  AddTimeOption(
      app, "--max-time", [stop](absl::Duration v) { SetDuration(v, stop->mutable_max_time()); },
      "End normally after so long; --timeout makes it an error.")
      ->group(group);
  AddList(
      app, "--stop", "TEXT", group,
      [stop](const std::vector<std::string>& values) {
        for (const std::string& value : values) stop->add_strings(value);
      },
      "Stop before TEXT. Repeat for more, at most 16.");
  AddList(
      app, "--stop-token", "IDS", group,
      [stop](const std::vector<std::string>& values) { AddStopTokens(values, stop); },
      "Stop at these token ids too.");
  app->add_flag_callback(
         "--ignore-eos", [stop] { stop->set_ignore_eos(true); }, "Never end the text by itself.")
      ->group(group);
  Add<int32_t>(
      app, "--min-tokens", "N", group, [stop](int32_t v) { stop->set_min_tokens(v); },
      "Do not end the text by itself before N tokens.");
}

void AddOutputOptions(CLI::App* app, v1::GenerateRequest* request) {
  const std::string group = "Output";
  v1::OutputOptions* output = request->mutable_output();
  app->add_flag_callback(
         "--logprobs", [output] { output->set_logprobs(true); },
         "Print a line per token instead of the text: log-probability, id and piece, tabs between.")
      ->group(group);
  Add<int32_t>(
      app, "--top-logprobs", "N", group, [output](int32_t v) { output->set_top_logprobs(v); },
      "The same with the N most likely tokens, at most 20, as further columns.");
}

}  // namespace weir
