// From the proto's parameters to the engine's, with every violation reported at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "model/loaded_model.h"
#include "runtime/engine/turn.h"
#include "server/frontend/violations.h"
#include "weir/v1/generation.pb.h"

namespace weir {

inline constexpr int64_t kDefaultMaxTokens = 256;
// Far beyond any real turn; keeps sums of positions within int64.
inline constexpr int64_t kMaxMaxTokens = 1'000'000'000'000;
inline constexpr int kMaxStopIds = 1024;

// Unset scalars take the folder's generation_config.json, then the neutral value. A folder that says
// "do_sample": false makes 0 the default temperature. The seed is drawn when unset.
void ReadSampling(const v1::SamplingParams& request, const v1::OutputOptions& output,
                  const v1::StopConditions& stop, const LoadedModel& model, SamplingParams* out,
                  FieldViolations* violations);

// Fills the stop part of `out`; `out->sampling.min_tokens` belongs to ReadSampling.
void ReadStop(const v1::StopConditions& request, const LoadedModel& model, TurnParams* out,
              FieldViolations* violations);

// What can be said of a prompt without tokenizing it.
void CheckPrompt(const v1::Prompt& prompt, const LoadedModel& model, int64_t max_text_bytes,
                 FieldViolations* violations);

// nullopt, and a violation of `field`, for what is not a duration above zero.
std::optional<absl::Duration> ReadDuration(const google::protobuf::Duration& duration, std::string_view field,
                                           FieldViolations* violations);

}  // namespace weir
