// Witnesses: a server's memory at one moment, from sides that do not know of each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/loadtest/slope.h"

namespace weir {

namespace v1 {
class ServerInfo;
}

struct MemorySample {
  absl::Duration at;
  // Positions of the load test's sessions, summed.
  int64_t tokens = 0;
  // No turn of the load test ran: `tokens` is exact, and no request is in memory.
  bool at_rest = false;
  // Past the warm-up, and at rest: a point of the slopes.
  bool measured = false;

  // What the engine gave out of the model's memory: used slots and used KV blocks times their bytes.
  int64_t arena = 0;
  // Of the server's process, as the kernel counts it (server_info.proto). 0: unknown, but for the first.
  int64_t resident = 0;
  int64_t proportional = 0;
  int64_t anonymous = 0;
  // Of the device, as its driver counts it; none on the CPU.
  std::optional<int64_t> device;

  // All tokens that the server has computed for the model since its start, whoever sent them.
  int64_t server_tokens = 0;
};

// `at`, `tokens` and the flags are left to the caller. NOT_FOUND when the server does not hold `model` (its
// id).
absl::StatusOr<MemorySample> ReadWitnesses(const v1::ServerInfo& info, const std::string& model);

// The slopes of all witnesses over the measured samples; those that cannot be had are left out.
struct WitnessSlopes {
  std::optional<Slope> arena;
  std::optional<Slope> resident;
  std::optional<Slope> proportional;
  std::optional<Slope> anonymous;
  std::optional<Slope> device;
};
WitnessSlopes FitWitnesses(const std::vector<MemorySample>& samples);

}  // namespace weir
