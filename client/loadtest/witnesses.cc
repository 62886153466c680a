#include "client/loadtest/witnesses.h"

#include "fmt/format.h"
#include "weir/v1/server_info.pb.h"

namespace weir {
namespace {

// `bytes` gives an optional; samples without a value make the slope one that cannot be had.
template <class Bytes>
std::optional<Slope> FitOne(const std::vector<MemorySample>& samples, Bytes bytes) {
  std::vector<SlopePoint> points;
  for (const MemorySample& sample : samples) {
    if (!sample.measured) continue;
    const std::optional<int64_t> value = bytes(sample);
    if (!value) return std::nullopt;
    points.push_back({static_cast<double>(sample.tokens), static_cast<double>(*value)});
  }
  const absl::StatusOr<Slope> slope = FitSlope(points);
  return slope.ok() ? std::optional(*slope) : std::nullopt;
}

std::optional<int64_t> Known(int64_t bytes) { return bytes > 0 ? std::optional(bytes) : std::nullopt; }

}  // namespace

absl::StatusOr<MemorySample> ReadWitnesses(const v1::ServerInfo& info, const std::string& model) {
  for (const v1::ModelUse& use : info.models()) {
    if (use.model().name() != "models/" + model) continue;
    MemorySample sample;
    const v1::StateCost& state = use.model().state();
    sample.arena = (use.slots_total() - use.slots_free()) * state.fixed_bytes() +
                   (use.kv_blocks_total() - use.kv_blocks_free()) * state.block_bytes();
    sample.resident = info.process_resident_bytes();
    sample.proportional = info.process_proportional_bytes();
    sample.anonymous = info.process_anonymous_bytes();
    if (info.has_device_used_bytes()) sample.device = info.device_used_bytes();
    sample.server_tokens = use.prefilled_tokens() + use.generated_tokens();
    return sample;
  }
  return absl::NotFoundError(fmt::format("the server holds no model '{}' any more", model));
}

WitnessSlopes FitWitnesses(const std::vector<MemorySample>& samples) {
  WitnessSlopes slopes;
  slopes.arena = FitOne(samples, [](const MemorySample& s) { return std::optional(s.arena); });
  if (slopes.arena) slopes.arena->counted = true;
  slopes.resident = FitOne(samples, [](const MemorySample& s) { return Known(s.resident); });
  slopes.proportional = FitOne(samples, [](const MemorySample& s) { return Known(s.proportional); });
  slopes.anonymous = FitOne(samples, [](const MemorySample& s) { return Known(s.anonymous); });
  slopes.device = FitOne(samples, [](const MemorySample& s) { return s.device; });
  return slopes;
}

}  // namespace weir
