#include "tests/bench/zoo/recall_score.h"

#include <algorithm>
#include <cmath>

#include "client/client.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "tests/bench/zoo/recall_score_problems.h"

namespace weir::recall {
namespace {

absl::Status Unfit(std::string message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "MODEL_UNFIT", message);
}

absl::Status CheckModel(const v1::Model& model, const Options& options) {
  if (model.vocab_size() < kNumIds)
    return Unfit(
        fmt::format("model '{}' has a vocabulary of {} ids, and problems of recall are made of {}; name one "
                    "that was trained on them, such as those of model/zoo/recall",
                    model.name(), model.vocab_size(), kNumIds));
  const int64_t longest = 4 * *std::max_element(options.pairs.begin(), options.pairs.end());
  if (model.context_limit() > 0 && longest > model.context_limit())
    return Unfit(
        fmt::format("model '{}' has a context limit of {} tokens, which {} pairs exceed; ask for --pairs of "
                    "at most {}",
                    model.name(), model.context_limit(), longest / 4, model.context_limit() / 4));
  return absl::OkStatus();
}

RecallOfModel Describe(const v1::Model& model) {
  RecallOfModel result;
  result.name = model.name().substr(model.name().find('/') + 1);
  result.mixer = model.mixer();
  result.parameters = model.parameter_count();
  if (model.state().kind() == v1::StateCost::KIND_FIXED)
    result.state_bytes = model.state().fixed_bytes();
  else if (model.state().block_tokens() > 0)
    result.kv_bytes_per_token = model.state().block_bytes() / model.state().block_tokens();
  return result;
}

absl::Status MeasurePairs(const WeirClient& client, const std::string& model, int pairs,
                          const Options& options, CancelToken* cancel, RecallOfModel* result) {
  const int problems = (options.queries + pairs - 1) / pairs;
  int64_t right = 0;
  double logprob = 0;
  v1::ScoreRequest request;
  request.set_model(model);
  for (int i = 0; i < problems; ++i) {
    const std::vector<int32_t> ids = MakeProblem(pairs, options.seed, static_cast<uint32_t>(i));
    request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
    WEIR_ASSIGN_OR_RETURN(const v1::ScoreResponse score, client.Score(request, cancel));
    const int scored = static_cast<int>(ids.size()) - 1;
    if (score.logprobs_size() != scored || score.ranks_size() != scored)
      return MakeError(
          absl::StatusCode::kFailedPrecondition, "NO_RANKS",
          fmt::format("the server sent {} log-probabilities and {} ranks for {} tokens; it is older "
                      "than this program, or not a Weir server",
                      score.logprobs_size(), score.ranks_size(), scored));
    for (int query = 0; query < pairs; ++query) {
      const int at = ValuePosition(pairs, query) - 1;  // the first id has no score
      right += score.ranks(at) == 1 ? 1 : 0;
      logprob += score.logprobs(at);
    }
  }
  const double queries = static_cast<double>(problems) * pairs;
  result->right[pairs] = static_cast<double>(right) / queries;
  result->bits[pairs] = -logprob / std::log(2.0) / queries;
  return absl::OkStatus();
}

nlohmann::ordered_json ByPairs(const std::map<int, double>& figures) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [pairs, figure] : figures) out[std::to_string(pairs)] = figure;
  return out;
}

nlohmann::ordered_json OrNull(const std::optional<int64_t>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string StateOf(const RecallOfModel& model) {
  if (model.state_bytes) return fmt::format("{} B", *model.state_bytes);
  return fmt::format("{} B a token", model.kv_bytes_per_token.value_or(0));
}

}  // namespace

absl::StatusOr<std::vector<RecallOfModel>> Measure(const WeirClient& client, const Options& options,
                                                   CancelToken* cancel) {
  // All of them before the first is scored, which takes a while.
  std::vector<RecallOfModel> results;
  for (const std::string& name : options.models) {
    v1::GetModelRequest request;
    request.set_name(ModelResource(name));
    WEIR_ASSIGN_OR_RETURN(const v1::Model model, client.GetModel(request, cancel));
    WEIR_RETURN_IF_ERROR(CheckModel(model, options));
    results.push_back(Describe(model));
  }
  for (RecallOfModel& result : results)
    for (const int pairs : options.pairs)
      WEIR_RETURN_IF_ERROR(MeasurePairs(client, ModelResource(result.name), pairs, options, cancel, &result));
  return results;
}

std::string ToJson(const Options& options, const std::vector<RecallOfModel>& models) {
  nlohmann::ordered_json out;
  out["pairs"] = options.pairs;
  out["queries"] = options.queries;
  out["seed"] = options.seed;
  out["models"] = nlohmann::ordered_json::array();
  for (const RecallOfModel& model : models)
    out["models"].push_back({{"name", model.name},
                             {"mixer", model.mixer},
                             {"parameters", model.parameters},
                             {"state_bytes", OrNull(model.state_bytes)},
                             {"kv_bytes_per_token", OrNull(model.kv_bytes_per_token)},
                             {"right", ByPairs(model.right)},
                             {"bits", ByPairs(model.bits)}});
  return out.dump();
}

std::string ToTable(const Options& options, const std::vector<RecallOfModel>& models) {
  const auto block = [&](const std::string& title, const auto& cell) {
    std::string out = fmt::format("{:24}{:>12}{:>14}", title, "parameters", "state");
    for (const int pairs : options.pairs) out += fmt::format("{:>8}", pairs);
    out += '\n';
    for (const RecallOfModel& model : models) {
      out += fmt::format("{:24}{:>12}{:>14}", model.name, model.parameters, StateOf(model));
      for (const int pairs : options.pairs) out += fmt::format("{:>8}", cell(model, pairs));
      out += '\n';
    }
    return out;
  };
  return fmt::format("By pairs, {} queries each, seed {}.\n\n", options.queries, options.seed) +
         block("right, %", [](const RecallOfModel& m,
                              int pairs) { return fmt::format("{:.1f}", 100 * m.right.at(pairs)); }) +
         "\n" + block("bits a value, of 9", [](const RecallOfModel& m, int pairs) {
           return fmt::format("{:.2f}", m.bits.at(pairs));
         });
}

}  // namespace weir::recall
