// Workload: what each request asks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/loadtest/seeded_draws.h"
#include "client/loadtest/transport.h"

namespace weir {

// How long prompts or answers are, in tokens; at least 1.
struct LengthSpec {
  enum class Kind { kFixed, kUniform, kLognormal };
  Kind kind = Kind::kFixed;
  int64_t low = 1;   // the length, the least one, or the median
  int64_t high = 1;  // kUniform: the greatest one; kLognormal: the 99th percentile

  // Log-normal lengths are cut at ten times the 99th percentile.
  int64_t Draw(SeededDraws* draws) const;
};

// N, A-B or lognormal:MEDIAN,P99. An INVALID_ARGUMENT says what is wrong and what may be written.
absl::StatusOr<LengthSpec> ParseLengthSpec(std::string_view text);

// The lines of a file of prompts, empty ones left out. INVALID_ARGUMENT names what is wrong in `name`: no
// line, or one that is not UTF-8.
absl::StatusOr<std::vector<std::string>> PromptLines(std::string_view text, std::string_view name);

struct WorkloadModel {
  std::string name;
  double weight = 1;
  int32_t vocab_size = 0;
  std::vector<int32_t> eos_token_ids = {};
};

struct WorkloadOptions {
  std::vector<WorkloadModel> models;
  std::vector<std::string> prompts;  // texts, taken in turn; empty: synthetic ids
  LengthSpec prompt_tokens;          // of synthetic prompts
  LengthSpec output_tokens;
  int turns = 1;
  uint64_t seed = 0;
};

struct PlannedTurn {
  TurnPrompt prompt;
  int64_t output_tokens = 1;
  uint64_t sampling_seed = 0;
};

// Immutable. Everything is a function of the seed and the index alone: request 17 asks for the same whatever
// came before it and whenever it is sent, and two models that are compared get prompts and answers of the
// same lengths.
//
// Synthetic prompts are token ids, not text, so that their length is exact and no tokenizer's habits are in
// it. They are drawn evenly from the vocabulary without the model's end-of-sequence ids; other special ids,
// which the server does not name, may be among them.
class Workload {
 public:
  explicit Workload(WorkloadOptions options);

  const std::vector<WorkloadModel>& models() const { return options_.models; }
  int turns() const { return options_.turns; }
  // Index in models() of the one that conversation `index` is held with, by weight.
  size_t ModelOf(uint64_t index) const;
  // 0 <= turn < turns().
  PlannedTurn Turn(uint64_t index, int turn) const;

 private:
  const WorkloadOptions options_;
  double total_weight_ = 0;
};

}  // namespace weir
