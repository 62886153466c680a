#include "tests/bench/zoo/text_score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "client/client.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir::zoo {
namespace {

constexpr double kUnread = std::numeric_limits<double>::quiet_NaN();

// The whole text: a mark in front of each document and one at the end.
struct Tokens {
  std::vector<int32_t> ids;
  std::vector<int64_t> bytes;  // of each; 0 of a mark
};

absl::StatusOr<Tokens> Tokenize(const WeirClient& client, const v1::Model& model, std::string_view text) {
  if (model.eos_token_ids().empty())
    return MakeError(absl::StatusCode::kFailedPrecondition, "MODEL_UNFIT",
                     fmt::format("{} has no id that ends a text", model.name()));
  const int32_t mark = model.eos_token_ids(0);
  Tokens tokens{{mark}, {0}};
  for (const std::string_view document : Documents(text)) {
    v1::TokenizeRequest request;
    request.set_model(model.name());
    request.set_text(std::string(document));
    request.set_add_special_tokens(false);
    WEIR_ASSIGN_OR_RETURN(const v1::TokenizeResponse response, client.Tokenize(request));
    for (int i = 0; i < response.token_ids_size(); ++i) {
      tokens.ids.push_back(response.token_ids(i));
      tokens.bytes.push_back(std::ssize(response.pieces(i)));
    }
    tokens.ids.push_back(mark);
    tokens.bytes.push_back(0);
  }
  return tokens;
}

class Scorer {
 public:
  Scorer(const WeirClient& client, const std::string& model, const Tokens& tokens)
      : client_(client), model_(model), tokens_(tokens) {}

  // Bits of ids (begin, begin + count], each after those from `begin` on.
  absl::StatusOr<std::vector<double>> Bits(int64_t begin, int64_t count) const {
    v1::ScoreRequest request;
    request.set_model(model_);
    const auto first = tokens_.ids.begin() + begin;
    request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Assign(first, first + count + 1);
    WEIR_ASSIGN_OR_RETURN(const v1::ScoreResponse response, client_.Score(request));
    std::vector<double> bits;
    for (const float logprob : response.logprobs()) bits.push_back(-logprob / std::log(2.0));
    if (std::ssize(bits) == count) return bits;
    return absl::DataLossError(fmt::format("{} of {} tokens were scored", bits.size(), count));
  }

  double PerByte(std::span<const double> bits, int64_t first) const {
    double sum = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      if (std::isnan(bits[i])) continue;
      sum += bits[i];
      bytes += tokens_.bytes[static_cast<size_t>(first) + i];
    }
    return bytes > 0 ? sum / static_cast<double>(bytes) : kUnread;
  }

 private:
  const WeirClient& client_;
  const std::string model_;
  const Tokens& tokens_;
};

// Bits of every token that was read in a window, NaN of others; [i] is token i.
absl::StatusOr<std::vector<double>> InWindows(const Scorer& scorer, const Options& options, int64_t num_ids,
                                              Scored* result) {
  std::vector<double> bits(static_cast<size_t>(num_ids), kUnread);
  const int64_t all = (num_ids - 1) / options.window;
  const int64_t wanted = options.windows == 0 ? all : std::min(all, options.windows);
  for (int64_t i = 0; i < wanted; ++i) {
    const int64_t begin = i * all / wanted * options.window;
    WEIR_ASSIGN_OR_RETURN(const std::vector<double> window, scorer.Bits(begin, options.window));
    std::copy(window.begin(), window.end(), bits.begin() + begin + 1);
  }
  result->tokens = wanted * options.window;
  result->bits_per_byte = scorer.PerByte(bits, 0);
  return bits;
}

std::vector<Range> Ranges(int64_t window, int64_t reach) {
  std::vector<Range> ranges;
  for (int64_t from = 0; from < reach; from = ranges.back().to)
    ranges.push_back({from, std::min(reach, from == 0 ? window : 2 * from), 0, std::nullopt});
  return ranges;
}

absl::Status InStretches(const Scorer& scorer, const Options& options, std::span<const double> in_windows,
                         Scored* result) {
  const int64_t num_ids = std::ssize(in_windows);
  std::vector<Range> ranges = Ranges(options.window, options.reach);
  std::vector<std::vector<double>> read, fresh;  // [stretch]
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < options.stretches; ++i) {
    const int64_t start = i * ((num_ids - 1) / options.stretches) / options.window * options.window;
    WEIR_ASSIGN_OR_RETURN(std::vector<double> bits, scorer.Bits(start, options.reach));
    starts.push_back(start);
    read.push_back(std::move(bits));
    const auto same = in_windows.subspan(static_cast<size_t>(start + 1), static_cast<size_t>(options.reach));
    fresh.emplace_back(same.begin(), same.end());
  }
  for (Range& range : ranges) {
    const auto mean = [&](const std::vector<std::vector<double>>& stretches) {
      double sum = 0;
      for (size_t i = 0; i < stretches.size(); ++i)
        sum += scorer.PerByte(
            std::span(stretches[i])
                .subspan(static_cast<size_t>(range.from), static_cast<size_t>(range.to - range.from)),
            starts[i] + 1 + range.from);
      return sum / static_cast<double>(stretches.size());
    };
    range.bits_per_byte = mean(read);
    const double in_own_windows = mean(fresh);
    if (options.windows == 0 && !std::isnan(in_own_windows)) range.fresh = in_own_windows;
  }
  result->by_position = std::move(ranges);
  return absl::OkStatus();
}

absl::StatusOr<Scored> MeasureModel(const WeirClient& client, const Options& options, const v1::Model& model,
                                    std::string_view text) {
  Scored result;
  result.name = model.name().substr(model.name().find('/') + 1);
  result.mixer = model.mixer();
  result.weight_dtype = model.weight_dtype();
  result.parameters = model.parameter_count();
  result.weight_bytes = model.weight_bytes();
  WEIR_ASSIGN_OR_RETURN(const Tokens tokens, Tokenize(client, model, text));
  const int64_t num_ids = std::ssize(tokens.ids);
  const int64_t needed = 1 + std::max(options.window, options.reach * options.stretches);
  if (num_ids < needed)
    return MakeError(absl::StatusCode::kInvalidArgument, "TEXT_TOO_SHORT",
                     fmt::format("the text has {} tokens for {}, and {} are needed; give a longer one, or a "
                                 "smaller --reach or --stretches",
                                 num_ids, model.name(), needed));
  const Scorer scorer(client, model.name(), tokens);
  WEIR_ASSIGN_OR_RETURN(const std::vector<double> bits, InWindows(scorer, options, num_ids, &result));
  if (options.reach > 0) WEIR_RETURN_IF_ERROR(InStretches(scorer, options, bits, &result));
  return result;
}

}  // namespace

std::vector<std::string_view> Documents(std::string_view text) {
  std::vector<std::string_view> documents;
  const std::string border = fmt::format("\n{}\n", kMark);
  while (!text.empty()) {
    const size_t end = text.find(border);
    std::string_view document = text.substr(0, end);
    while (document.starts_with('\n')) document.remove_prefix(1);
    while (document.ends_with('\n')) document.remove_suffix(1);
    if (!document.empty()) documents.push_back(document);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + border.size());
  }
  return documents;
}

absl::StatusOr<std::vector<Scored>> Measure(const WeirClient& client, const Options& options,
                                            std::string_view text) {
  std::vector<v1::Model> models;  // all of them before the first is scored, which takes a while
  for (const std::string& name : options.models) {
    v1::GetModelRequest request;
    request.set_name(ModelResource(name));
    WEIR_ASSIGN_OR_RETURN(v1::Model model, client.GetModel(request));
    models.push_back(std::move(model));
  }
  std::vector<Scored> results;
  for (const v1::Model& model : models) {
    WEIR_ASSIGN_OR_RETURN(Scored scored, MeasureModel(client, options, model, text));
    results.push_back(std::move(scored));
  }
  return results;
}

std::string ToJson(const Options& options, const std::vector<Scored>& models) {
  nlohmann::ordered_json out;
  out["window"] = options.window;
  out["stretches"] = options.reach > 0 ? options.stretches : 0;
  out["models"] = nlohmann::ordered_json::array();
  for (const Scored& model : models) {
    nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
    for (const Range& range : model.by_position)
      ranges.push_back({{"from", range.from},
                        {"to", range.to},
                        {"bits_per_byte", range.bits_per_byte},
                        {"fresh", range.fresh ? nlohmann::ordered_json(*range.fresh) : nullptr}});
    out["models"].push_back({{"name", model.name},
                             {"mixer", model.mixer},
                             {"weight_dtype", model.weight_dtype},
                             {"parameters", model.parameters},
                             {"weight_bytes", model.weight_bytes},
                             {"tokens", model.tokens},
                             {"bits_per_byte", model.bits_per_byte},
                             {"by_position", std::move(ranges)}});
  }
  return out.dump();
}

}  // namespace weir::zoo
