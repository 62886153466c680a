#include "server/frontend/validate.h"

#include <algorithm>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/engine/sampler.h"
#include "server/frontend/names.h"

namespace weir {
namespace {

template <class T>
T Choose(bool has_request, T request, const std::optional<T>& folder, T neutral) {
  return has_request ? request : folder.value_or(neutral);
}

bool InVocabulary(int32_t id, const LoadedModel& model) { return id >= 0 && id < model.text->size(); }

std::string OutsideVocabulary(int32_t id, const LoadedModel& model) {
  return fmt::format("{} is outside the vocabulary of {} ids", id, model.text->size());
}

// The sampler knows its own field names; the message that holds each is the contract's.
std::string ProtoField(const std::string& field) {
  if (field.rfind("top_logprobs", 0) == 0 || field == "logprobs") return "output." + field;
  if (field.rfind("min_tokens", 0) == 0) return "stop." + field;
  return "sampling." + field;
}

}  // namespace

void ReadSampling(const v1::SamplingParams& request, const v1::OutputOptions& output,
                  const v1::StopConditions& stop, const LoadedModel& model, SamplingParams* out,
                  FieldViolations* violations) {
  const GenerationDefaults& folder = model.defaults;
  const SamplingParams neutral;
  out->temperature = Choose(request.has_temperature(), request.temperature(),
                            folder.do_sample == false ? std::optional<float>(0.0f) : folder.temperature,
                            neutral.temperature);
  if (out->temperature == 0) out->temperature = 0;  // -0 too
  out->top_k = Choose(request.has_top_k(), request.top_k(), folder.top_k, neutral.top_k);
  out->top_p = Choose(request.has_top_p(), request.top_p(), folder.top_p, neutral.top_p);
  out->min_p = Choose(request.has_min_p(), request.min_p(), folder.min_p, neutral.min_p);
  out->repetition_penalty = Choose(request.has_repetition_penalty(), request.repetition_penalty(),
                                   folder.repetition_penalty, neutral.repetition_penalty);
  if (request.has_presence_penalty()) out->presence_penalty = request.presence_penalty();
  if (request.has_frequency_penalty()) out->frequency_penalty = request.frequency_penalty();
  out->logit_bias.assign(request.logit_bias().begin(), request.logit_bias().end());
  std::sort(out->logit_bias.begin(), out->logit_bias.end());
  out->seed = request.has_seed() ? request.seed() : RandomSeed();
  out->logprobs = output.logprobs() || output.has_top_logprobs();
  out->top_logprobs = output.top_logprobs();
  out->min_tokens = stop.min_tokens();
  for (const FieldViolation& violation : Check(*out, model.text->size()))
    violations->Add(ProtoField(violation.field), violation.description);
}

void ReadStop(const v1::StopConditions& request, const LoadedModel& model, TurnParams* out,
              FieldViolations* violations) {
  out->max_tokens = request.has_max_tokens() ? request.max_tokens() : kDefaultMaxTokens;
  if (!(out->max_tokens >= 0 && out->max_tokens <= kMaxMaxTokens))
    violations->Add("stop.max_tokens", fmt::format("must be from 0 to {}", kMaxMaxTokens));
  if (out->max_tokens >= 0 && request.min_tokens() > out->max_tokens)
    violations->Add("stop.min_tokens",
                    fmt::format("{} is more than max_tokens, which is {}{}", request.min_tokens(),
                                out->max_tokens, request.has_max_tokens() ? "" : " by default"));
  if (request.has_max_time())
    if (const auto time = ReadDuration(request.max_time(), "stop.max_time", violations))
      out->max_time = *time;

  if (request.strings_size() > 0 && !model.tokenizer)
    violations->Add("stop.strings",
                    "the model has no tokenizer, so its answers have no text; use stop.token_ids");
  bool good = true;
  auto refuse = [&](const std::string& field, const std::string& description) {
    violations->Add(field, description);
    good = false;
  };
  if (request.strings_size() > static_cast<int>(kMaxStops))
    refuse("stop.strings",
           fmt::format("{} strings; at most {} are allowed", request.strings_size(), kMaxStops));
  for (int i = 0; good && i < request.strings_size(); ++i) {
    const size_t bytes = request.strings(i).size();
    if (bytes == 0) refuse(fmt::format("stop.strings[{}]", i), "is empty");
    if (bytes > kMaxStopBytes)
      refuse(fmt::format("stop.strings[{}]", i),
             fmt::format("has {} bytes; at most {} are allowed", bytes, kMaxStopBytes));
  }
  if (good && request.strings_size() > 0) {
    const std::vector<std::string> strings(request.strings().begin(), request.strings().end());
    auto matcher = StopMatcher::Create(strings);
    if (matcher.ok())
      out->stop_strings = std::make_shared<const StopMatcher>(*std::move(matcher));
    else
      violations->Add("stop.strings", std::string(matcher.status().message()));
  }

  if (request.token_ids_size() > kMaxStopIds)
    violations->Add("stop.token_ids",
                    fmt::format("{} ids; at most {} are allowed", request.token_ids_size(), kMaxStopIds));
  for (const int32_t id : request.token_ids())
    if (!InVocabulary(id, model)) violations->Add("stop.token_ids", OutsideVocabulary(id, model));
  out->stop_ids.assign(request.token_ids().begin(), request.token_ids().end());
  std::sort(out->stop_ids.begin(), out->stop_ids.end());
  out->stop_ids.erase(std::unique(out->stop_ids.begin(), out->stop_ids.end()), out->stop_ids.end());
  out->ignore_eos = request.ignore_eos();
}

void CheckPrompt(const v1::Prompt& prompt, const LoadedModel& model, int64_t max_text_bytes,
                 FieldViolations* violations) {
  if (prompt.has_text() && !model.tokenizer)
    violations->Add("prompt.text",
                    "the model has no tokenizer; send token_ids (weir --token-ids), or start the server with "
                    "a --tokenizer");
  if (static_cast<int64_t>(prompt.text().size()) > max_text_bytes)
    violations->Add("prompt.text", fmt::format("has {} bytes; this server takes at most {} at once",
                                               prompt.text().size(), max_text_bytes));
  for (int i = 0; i < prompt.token_ids().ids_size(); ++i) {
    if (InVocabulary(prompt.token_ids().ids(i), model)) continue;
    violations->Add(fmt::format("prompt.token_ids.ids[{}]", i),
                    OutsideVocabulary(prompt.token_ids().ids(i), model));
    break;  // one wrong id tells as much as a thousand
  }
}

std::optional<absl::Duration> ReadDuration(const google::protobuf::Duration& duration, std::string_view field,
                                           FieldViolations* violations) {
  constexpr int64_t kMaxSeconds = 315'576'000'000;  // of google.protobuf.Duration
  const bool valid = duration.seconds() >= 0 && duration.seconds() <= kMaxSeconds && duration.nanos() >= 0 &&
                     duration.nanos() <= 999'999'999 && (duration.seconds() > 0 || duration.nanos() > 0);
  if (!valid) {
    violations->Add(field, "must be a duration above zero");
    return std::nullopt;
  }
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace weir
