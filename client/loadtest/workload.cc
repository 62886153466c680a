#include "client/loadtest/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "client/request_check.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

constexpr int64_t kMaxLength = 100'000'000;
constexpr double kNormal99 = 2.3263478740408408;  // 99 % of a normal distribution lie below
constexpr int64_t kLognormalCut = 10;             // times the 99th percentile
constexpr std::string_view kLognormal = "lognormal:";

using Purpose = SeededDraws::Purpose;

bool ReadLength(std::string_view text, int64_t* length) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *length);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && *length >= 1 &&
         *length <= kMaxLength;
}

std::vector<WorkloadModel> WithSortedEos(std::vector<WorkloadModel> models) {
  for (WorkloadModel& model : models) {
    std::vector<int32_t>& ids = model.eos_token_ids;
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= model.vocab_size; });
    // A vocabulary of nothing else: then they are what there is.
    if (static_cast<int32_t>(ids.size()) >= model.vocab_size) ids.clear();
  }
  return models;
}

WorkloadOptions Prepared(WorkloadOptions options) {
  options.models = WithSortedEos(std::move(options.models));
  return options;
}

int32_t DrawId(const WorkloadModel& model, SeededDraws* draws) {
  const std::vector<int32_t>& eos = model.eos_token_ids;  // ascending
  auto id = static_cast<int32_t>(draws->Below(static_cast<uint64_t>(model.vocab_size) - eos.size()));
  for (const int32_t left_out : eos)
    if (left_out <= id) ++id;
  return id;
}

}  // namespace

int64_t LengthSpec::Draw(SeededDraws* draws) const {
  switch (kind) {
    case Kind::kUniform:
      return low + static_cast<int64_t>(draws->Below(static_cast<uint64_t>(high - low) + 1));
    case Kind::kLognormal: {
      const double sigma = PortableLog(static_cast<double>(high) / static_cast<double>(low)) / kNormal99;
      const double length = static_cast<double>(low) * PortableExp(sigma * draws->Normal());
      return std::clamp(std::llround(length), 1LL, static_cast<long long>(kLognormalCut * high));
    }
    case Kind::kFixed:
      break;
  }
  return low;
}

absl::StatusOr<LengthSpec> ParseLengthSpec(std::string_view text) {
  LengthSpec spec;
  bool ok = false;
  std::string_view rest = text;
  char between = '-';
  spec.kind = LengthSpec::Kind::kUniform;
  if (rest.substr(0, kLognormal.size()) == kLognormal) {
    rest.remove_prefix(kLognormal.size());
    between = ',';
    spec.kind = LengthSpec::Kind::kLognormal;
  }
  const size_t at = rest.find(between);
  if (at != std::string_view::npos) {
    ok = ReadLength(rest.substr(0, at), &spec.low) && ReadLength(rest.substr(at + 1), &spec.high) &&
         spec.low <= spec.high;
  } else if (between == '-') {
    spec.kind = LengthSpec::Kind::kFixed;
    ok = ReadLength(rest, &spec.low);
    spec.high = spec.low;
  }
  if (!ok)
    return absl::InvalidArgumentError(
        fmt::format("{} is no length in tokens; write N, A-B (each as likely) or lognormal:MEDIAN,P99, with "
                    "whole numbers "
                    "from 1 to {}, the smaller one first",
                    Quoted(text), kMaxLength));
  return spec;
}

absl::StatusOr<std::vector<std::string>> PromptLines(std::string_view text, std::string_view name) {
  std::vector<std::string> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (const size_t at = FirstInvalidByte(line); at != std::string_view::npos)
      return absl::InvalidArgumentError(
          fmt::format("{}: line {} is not UTF-8: byte {} of it is 0x{:02x}; convert the file", Quoted(name),
                      number, at, static_cast<unsigned char>(line[at])));
    if (!line.empty()) lines.emplace_back(line);
  }
  if (lines.empty())
    return absl::InvalidArgumentError(fmt::format(
        "{}: has no prompt; write one a line, or leave the option out for synthetic ones", Quoted(name)));
  return lines;
}

Workload::Workload(WorkloadOptions options) : options_(Prepared(std::move(options))) {
  for (const WorkloadModel& model : options_.models) total_weight_ += model.weight;
}

size_t Workload::ModelOf(uint64_t index) const {
  const size_t last = options_.models.size() - 1;
  if (last == 0) return 0;
  double at = SeededDraws(options_.seed, Purpose::kModel, index).Unit() * total_weight_;
  for (size_t model = 0; model < last; ++model) {
    at -= options_.models[model].weight;
    if (at < 0) return model;
  }
  return last;
}

PlannedTurn Workload::Turn(uint64_t index, int turn) const {
  const uint64_t number = index * static_cast<uint64_t>(options_.turns) + static_cast<uint64_t>(turn);
  const auto draws = [&](Purpose purpose) { return SeededDraws(options_.seed, purpose, number); };
  PlannedTurn planned;
  planned.sampling_seed = draws(Purpose::kSampling).Bits();
  SeededDraws output = draws(Purpose::kOutputLength);
  planned.output_tokens = options_.output_tokens.Draw(&output);
  if (!options_.prompts.empty()) {
    planned.prompt.text = options_.prompts[number % options_.prompts.size()];
    return planned;
  }
  SeededDraws length = draws(Purpose::kPromptLength);
  SeededDraws ids = draws(Purpose::kPrompt);
  planned.prompt.token_ids.resize(static_cast<size_t>(options_.prompt_tokens.Draw(&length)));
  for (int32_t& id : planned.prompt.token_ids) id = DrawId(options_.models[ModelOf(index)], &ids);
  return planned;
}

}  // namespace weir
