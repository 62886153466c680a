// Associative recall through a server: how surely its models find the value that stood behind a key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {
class CancelToken;
class WeirClient;
}  // namespace weir

namespace weir::recall {

struct Options {
  std::vector<std::string> models;  // with or without models/
  std::vector<int> pairs = {4, 8, 16, 32, 64, 128, 256};
  int queries = 4096;  // of each number of pairs, or the next multiple of it
  uint64_t seed = 1;
};

struct RecallOfModel {
  std::string name;  // without models/
  std::string mixer;
  int64_t parameters = 0;
  std::optional<int64_t> state_bytes;  // of a session, where it is the same at every position
  std::optional<int64_t> kv_bytes_per_token;
  // By the number of pairs:
  std::map<int, double> right;  // share of the queried values that were the most likely id
  std::map<int, double> bits;   // mean of -log2 p of the queried values
};

// Scores each problem with one call. Every model gets the same problems, and those of one number of pairs do
// not depend on which others are asked for.
absl::StatusOr<std::vector<RecallOfModel>> Measure(const WeirClient& client, const Options& options,
                                                   CancelToken* cancel);

// One object on one line; README.md of model/zoo/recall has the fields.
std::string ToJson(const Options& options, const std::vector<RecallOfModel>& models);
std::string ToTable(const Options& options, const std::vector<RecallOfModel>& models);

}  // namespace weir::recall
