#include "client/loadtest/turn_record.h"

#include <algorithm>

namespace weir {
namespace {

std::optional<absl::Duration> Since(absl::Duration start, absl::Duration at) {
  if (at == absl::InfiniteDuration()) return std::nullopt;
  return at - start;
}

}  // namespace

void TurnRecord::Delta(absl::Duration at, int64_t num_tokens, bool has_text, OnGap gap) {
  if (has_text) first_text_ = std::min(first_text_, at);
  if (num_tokens <= 0) return;
  if (tokens_ == 0)
    first_token_ = at;
  else
    gap(absl::ToInt64Nanoseconds(at - last_token_), 1);
  if (num_tokens > 1) gap(0, num_tokens - 1);
  last_token_ = at;
  tokens_ += num_tokens;
}

std::optional<absl::Duration> TurnRecord::TimeToFirstToken() const { return Since(scheduled_, first_token_); }
std::optional<absl::Duration> TurnRecord::TimeToFirstText() const { return Since(scheduled_, first_text_); }
std::optional<absl::Duration> TurnRecord::EndToEnd() const { return Since(scheduled_, ended_); }

std::optional<absl::Duration> TurnRecord::TimePerOutputToken() const {
  if (tokens_ < 2 || ended_ == absl::InfiniteDuration()) return std::nullopt;
  return (ended_ - first_token_) / (tokens_ - 1);
}

std::optional<double> TurnRecord::TokensPerSecond() const {
  if (tokens_ < 2 || last_token_ <= first_token_) return std::nullopt;
  return static_cast<double>(tokens_ - 1) / absl::ToDoubleSeconds(last_token_ - first_token_);
}

}  // namespace weir
