// What the live page polls.
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/base/clock.h"
#include "runtime/state/kv_pool.h"
#include "server/metrics/metrics.h"
#include "server/metrics/process_use.h"

namespace weir {
namespace {

nlohmann::ordered_json ModelJson(const LoadedModel& model, const RunnerStats& stats,
                                 const RunnerMetrics& metrics) {
  const bool paged = stats.kv_block_bytes > 0;
  return {
      {"name", model.name},
      {"mixer", model.mixer},
      {"state_kind", paged ? "paged" : "fixed"},
      {"fixed_bytes", stats.slot_bytes},
      {"block_bytes", stats.kv_block_bytes},
      {"block_tokens", paged ? kKvBlockTokens : 0},
      {"heads", nullptr},
      {"slots_total", stats.slots_total},
      {"slots_free", stats.slots_free},
      {"kv_blocks_total", stats.kv_blocks_total},
      {"kv_blocks_free", stats.kv_blocks_free},
      {"sessions", stats.sessions},
      {"running", stats.running},
      {"waiting", stats.waiting},
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"steps", stats.steps},
      {"step_seconds_sum", metrics.step_duration.sum()},
      {"positions", {{"sum", stats.session_positions}, {"max", stats.max_session_position}}},
  };
}

}  // namespace

std::string LiveJson(const MetricsView& view) {
  nlohmann::ordered_json live = {
      {"version", WEIR_VERSION},
      {"uptime_seconds", absl::ToDoubleSeconds(MonotonicNow() - view.start_time)},
      {"device", ""},
      {"process_resident_bytes", ReadProcessUse().resident_bytes},
      {"serving", view.serving},
      {"draining", false},
      {"models", nlohmann::ordered_json::array()},
  };
  if (view.frontend != nullptr) {
    const Engine& engine = view.frontend->engine();
    live["device"] = engine.device().name() + " (" + engine.device().Description() + ")";
    live["draining"] = view.frontend->leaving();
    const std::vector<RunnerStats> stats = engine.Stats();
    for (size_t i = 0; i < stats.size(); ++i)
      live["models"].push_back(
          ModelJson(view.frontend->models()[i], stats[i], engine.metrics(static_cast<int>(i))));
  }
  return live.dump();
}

}  // namespace weir
