#include "client/loadtest/run_growth.h"

#include <algorithm>
#include <utility>

#include "client/loadtest/capacity.h"
#include "client/loadtest/run.h"
#include "fmt/format.h"

namespace weir {
namespace {

StateShape ShapeOf(const ModelReport& model) {
  return {model.paged, model.fixed_bytes, model.block_bytes, model.block_tokens};
}

}  // namespace

absl::Status RunGrowth(GrowthOptions options, int32_t vocab_size, const LoadtestHooks& hooks, Loop* loop,
                       Transport* transport, ModelReport* report, std::vector<std::string>* failures) {
  options.model = report->name;
  options.shape = ShapeOf(*report);
  options.vocab_size = vocab_size;
  GrowthPhase phase(std::move(options), loop, transport);
  RunLoadPhase(fmt::format("{}, growth", report->name), &phase, hooks, loop);
  report->growth = phase.figures();
  if (!phase.figures().failure.empty())
    failures->push_back(fmt::format("{}: growth: {}", report->name, phase.figures().failure));
  return phase.lost();
}

absl::Status RunCapacity(int32_t vocab_size, uint64_t seed, const LoadtestHooks& hooks, Loop* loop,
                         Transport* transport, ModelReport* report, std::vector<std::string>* failures) {
  CapacityPhase phase({report->name, vocab_size, seed}, loop, transport);
  RunLoadPhase(fmt::format("{}, capacity", report->name), &phase, hooks, loop);
  report->capacity = phase.figures();
  if (!phase.figures().failure.empty())
    failures->push_back(fmt::format("{}: capacity: {}", report->name, phase.figures().failure));
  return phase.lost();
}

void WarnOfGrowth(const GrowthOptions& options, const std::vector<ModelReport>& models,
                  const LoadtestHooks& hooks) {
  if (options.positions.empty()) return;
  for (const ModelReport& model : models) {
    GrowthWay way = options;
    way.shape = ShapeOf(model);
    if (const std::string text = GrowthWarning(way); !text.empty())
      hooks.warn(fmt::format("{}: {}", model.name, text));
  }
}

bool IsUndecided(const Report& report) {
  const auto undecided =
      std::count_if(report.models.begin(), report.models.end(), [](const ModelReport& model) {
        return model.growth && model.growth->outcome == GrowthOutcome::kUndecided;
      });
  return undecided > 0 && undecided == static_cast<std::ptrdiff_t>(report.failures.size());
}

void FindBreakEvens(std::vector<ModelReport>* models) {
  for (ModelReport& model : *models) {
    model.break_even.clear();
    for (const ModelReport& other : *models)
      if (const auto position = BreakEvenPosition(ShapeOf(model), ShapeOf(other)))
        model.break_even.push_back({other.name, *position});
  }
}

}  // namespace weir
