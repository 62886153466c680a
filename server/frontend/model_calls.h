// The methods of weir.v1.Models, and how a score is read off a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/engine/token_stream.h"
#include "server/frontend/frontend.h"
#include "weir/v1/models.pb.h"

namespace weir {

v1::Model ModelToProto(const LoadedModel& model);

absl::StatusOr<v1::Model> GetModel(const Frontend& frontend, const v1::GetModelRequest& request);
// Ordered by name; the page token is the last name of the page before.
absl::StatusOr<v1::ListModelsResponse> ListModels(const Frontend& frontend,
                                                  const v1::ListModelsRequest& request);

// These two take time in proportion to the text: executor threads only.
absl::StatusOr<v1::TokenizeResponse> Tokenize(const Frontend& frontend, const v1::TokenizeRequest& request,
                                              const CallInfo& call, const std::atomic<bool>& cancelled);
absl::StatusOr<v1::DetokenizeResponse> Detokenize(const Frontend& frontend,
                                                  const v1::DetokenizeRequest& request, const CallInfo& call,
                                                  const std::atomic<bool>& cancelled);

// Gathers the chunks of a Score turn. Used by one thread at a time.
class ScoreReader {
 public:
  // `turn` outlives this.
  explicit ScoreReader(const StartedTurn* turn) : turn_(turn) {}
  void Add(const StreamChunk& chunk);
  v1::ScoreResponse Finish() const;

 private:
  const StartedTurn* const turn_;
  std::vector<float> logprobs_;
  std::vector<int32_t> ranks_;
};

}  // namespace weir
