#include "client/loadtest/growth_plan.h"

#include <algorithm>
#include <cmath>

#include "client/loadtest/text_table.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace weir {
namespace {

constexpr int64_t kLargestPiece = 4096;
constexpr int64_t kSmallestPiece = 64;
constexpr int64_t kTurnsWanted = 128;    // between the first position and the last
constexpr int64_t kLeastWarmPieces = 2;  // not measured
constexpr int64_t kWarmShare = 16;
constexpr int64_t kFurthestPosition = 1'000'000'000'000;
constexpr int64_t kMostSessions = 1024;  // that it is of use to advise

// To two digits: 123,456 is 130,000.
int64_t RoundUp(int64_t number) {
  int64_t unit = 1;
  while (number / unit >= 100) unit *= 10;
  return (number + unit - 1) / unit * unit;
}

bool Suffices(const GrowthPlan& plan, double wanted_span) {
  return static_cast<double>(plan.span) >= wanted_span && plan.samples >= kLeastGrowthSamples;
}

// The nearest further position, to two digits, that suffices; 0: none does.
int64_t FurtherPosition(GrowthWay way, double wanted_span) {
  int64_t position = RoundUp(way.positions.back() + std::max<int64_t>(way.latency_tokens, 1));
  way.positions.push_back(position);
  while (!Suffices(PlanGrowth(way), wanted_span)) {
    position = RoundUp(position + std::max<int64_t>(position / 20, 1));
    if (position > kFurthestPosition || (way.context_limit > 0 && position > way.context_limit)) return 0;
    way.positions.back() = position;
  }
  return position;
}

}  // namespace

absl::Status CheckGrowthWay(const GrowthWay& way) {
  if (way.sessions < 1) return absl::InvalidArgumentError("growth needs at least one session");
  if (way.positions.empty()) return absl::InvalidArgumentError("growth needs positions");
  int64_t from = 0;
  for (const int64_t position : way.positions) {
    const int64_t least = from == 0 ? 1 : from + std::max<int64_t>(way.latency_tokens, 1);
    if (position < least)
      return absl::InvalidArgumentError(fmt::format(
          "positions have to rise, by {} at least, which are generated at each: {} comes after {}",
          std::max<int64_t>(way.latency_tokens, 1), position, from));
    from = position;
  }
  if (way.positions.size() > 1) return absl::OkStatus();
  const std::string both = from >= kLeastGrowthSpan / 2 ? fmt::format("1000,{}", from)
                                                        : fmt::format("{},{}", from, kLeastGrowthSpan);
  return absl::InvalidArgumentError(
      fmt::format("between one position and none there is no slope: give two or more, such as {}", both));
}

int64_t GrowthPiece(const std::vector<int64_t>& positions) {
  const int64_t way = positions.back() - positions.front();
  const int64_t wanted = std::clamp(way / kTurnsWanted, kSmallestPiece, kLargestPiece);
  return std::max<int64_t>(std::min(wanted, positions.front()), 1);
}

GrowthPlan PlanGrowth(const GrowthWay& way) {
  GrowthPlan plan;
  plan.piece = way.piece > 0 ? way.piece : GrowthPiece(way.positions);
  const int64_t pieces = (way.positions.back() - way.positions.front()) / plan.piece;
  const int64_t warm = std::max(kLeastWarmPieces, way.shape.paged ? 0 : pieces / kWarmShare);
  plan.measured_from = way.positions.front() + way.latency_tokens + warm * plan.piece;
  int64_t first = 0;
  const auto note = [&](int64_t position, int64_t samples) {
    if (plan.samples == 0) first = position;
    plan.samples += samples;
  };
  // A sample after each piece, the last of which may be shorter, and one after the latencies.
  for (size_t i = 1; i < way.positions.size(); ++i) {
    const int64_t begin = way.positions[i - 1] + way.latency_tokens, end = way.positions[i];
    const int64_t turns = (end - begin + plan.piece - 1) / plan.piece;
    const int64_t ahead = std::max<int64_t>(plan.measured_from - begin, 0);
    const int64_t from = std::max<int64_t>((ahead + plan.piece - 1) / plan.piece, 1);
    if (end >= plan.measured_from && from <= turns)
      note(std::min(begin + from * plan.piece, end), turns - from + 1);
    if (end + way.latency_tokens >= plan.measured_from) note(end + way.latency_tokens, 1);
  }
  if (plan.samples > 0) plan.span = (way.positions.back() + way.latency_tokens - first) * way.sessions;
  return plan;
}

std::string GrowthRemedy(const GrowthWay& way, double wanted_span) {
  std::vector<std::string> options;
  const GrowthPlan plan = PlanGrowth(way);
  if (const int64_t position = FurtherPosition(way, wanted_span); position > 0)
    options.push_back(fmt::format("--positions {},{}", fmt::join(way.positions, ","), position));
  GrowthWay changed = way;
  if (plan.span > 0)
    changed.sessions = static_cast<int64_t>(std::ceil(
        std::max(wanted_span / static_cast<double>(plan.span), 1.0) * static_cast<double>(way.sessions)));
  if (changed.sessions > way.sessions && changed.sessions <= kMostSessions &&
      Suffices(PlanGrowth(changed), wanted_span))
    options.push_back(fmt::format("--sessions {}", changed.sessions));
  changed = way;
  changed.piece = plan.piece;
  while (changed.piece > 1 && !Suffices(PlanGrowth(changed), wanted_span)) changed.piece /= 2;
  if (changed.piece < plan.piece && Suffices(PlanGrowth(changed), wanted_span))
    options.push_back(fmt::format("--piece {}", changed.piece));
  if (options.empty())
    return fmt::format("no option reaches {} tokens here", GroupedNumber(std::llround(wanted_span)));
  return fmt::format("use {}", fmt::join(options, " or "));
}

std::string GrowthWarning(const GrowthWay& way) {
  if (way.shape.paged) return "";  // exact from the first token on
  const GrowthPlan plan = PlanGrowth(way);
  if (Suffices(plan, kLeastGrowthSpan)) return "";
  return fmt::format(
      "{} tokens in {} samples after the warm-up are too few for a verdict on constant memory, which takes "
      "{} "
      "in {} at least: {}",
      GroupedNumber(plan.span), plan.samples, GroupedNumber(kLeastGrowthSpan), kLeastGrowthSamples,
      GrowthRemedy(way, kLeastGrowthSpan));
}

}  // namespace weir
