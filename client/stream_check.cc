#include "client/stream_check.h"

#include <string>

#include "client/rpc_error.h"
#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

absl::Status Malformed(std::string_view what) {
  return MakeError(
      absl::StatusCode::kDataLoss, kStreamMalformed,
      fmt::format("the stream is damaged: {}; generate again from the session's position", what));
}

}  // namespace

absl::Status StreamCheck::AddDelta(const v1::Delta& delta) {
  if (delta.position() != next_position_)
    return MakeError(
        absl::StatusCode::kDataLoss, kStreamGap,
        fmt::format("the stream has a gap: expected position {}, received {}; Sessions.Get has the "
                    "recent tokens of a session",
                    next_position_, delta.position()),
        {{"expected", std::to_string(next_position_)}, {"received", std::to_string(delta.position())}});
  next_position_ += delta.token_ids_size();
  tokens_ += delta.token_ids_size();
  return absl::OkStatus();
}

absl::Status StreamCheck::Add(const v1::GenerateResponse& event) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kPromptInfo:
      if (state_ != State::kStart) return Malformed("a second prompt_info");
      state_ = State::kDeltas;
      next_position_ = event.prompt_info().reused_tokens() + event.prompt_info().prompt_tokens();
      return absl::OkStatus();
    case v1::GenerateResponse::kDelta:
      if (state_ != State::kDeltas) return Malformed("a delta outside of prompt_info and finish");
      return AddDelta(event.delta());
    case v1::GenerateResponse::kFinish:
      if (state_ != State::kDeltas) return Malformed("finish without prompt_info");
      state_ = State::kFinished;
      if (event.finish().usage().generated_tokens() != tokens_)
        return MakeError(absl::StatusCode::kDataLoss, kStreamGap,
                         fmt::format("the stream has a gap: {} tokens were generated, {} arrived",
                                     event.finish().usage().generated_tokens(), tokens_),
                         {{"expected", std::to_string(event.finish().usage().generated_tokens())},
                          {"received", std::to_string(tokens_)}});
      return absl::OkStatus();
    case v1::GenerateResponse::EVENT_NOT_SET:
      // An event of a later contract; what it means is not ours to check.
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status StreamCheck::End() const {
  return state_ == State::kFinished ? absl::OkStatus() : Malformed("it ended without finish");
}

}  // namespace weir
