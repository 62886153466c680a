#include <algorithm>
#include <cmath>
#include <utility>

#include "client/loadtest/growth_figures.h"
#include "fmt/format.h"

namespace weir {
namespace {

// 1,234,567
std::string Grouped(int64_t number) {
  std::string text = fmt::format("{}", number < 0 ? -number : number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return number < 0 ? "-" + text : text;
}

struct Finding {
  GrowthVerdict verdict = GrowthVerdict::kUndecided;
  std::string why;
};

// The first reading that is not what the shapes say, if there is one.
std::optional<Finding> AccountingDiffers(const StateShape& shape, const GrowthFigures& figures) {
  const int64_t slack = shape.paged ? shape.block_bytes : 0;
  for (const AccountedBytes& read : figures.accounted) {
    const int64_t expected = shape.BytesAt(read.position);
    if (std::abs(read.bytes - expected) <= slack) continue;
    return Finding{read.bytes > expected ? GrowthVerdict::kGrows : GrowthVerdict::kUndecided,
                   fmt::format("the server accounts {} bytes to a session at position {}, the shapes say {}",
                               Grouped(read.bytes), Grouped(read.position), Grouped(expected))};
  }
  return std::nullopt;
}

std::vector<const MemorySample*> Measured(const GrowthFigures& figures) {
  std::vector<const MemorySample*> measured;
  for (const MemorySample& sample : figures.samples)
    if (sample.measured) measured.push_back(&sample);
  return measured;
}

std::optional<Finding> ArenaMoves(const GrowthFigures& figures) {
  const std::vector<const MemorySample*> measured = Measured(figures);
  for (const MemorySample* sample : measured) {
    if (sample->arena == measured.front()->arena) continue;
    return Finding{
        sample->arena > measured.front()->arena ? GrowthVerdict::kGrows : GrowthVerdict::kUndecided,
        fmt::format("the arena's use went from {} to {} bytes between token {} and {}, though no session "
                    "came or went: "
                    "either state grows, or somebody else uses the model",
                    Grouped(measured.front()->arena), Grouped(sample->arena),
                    Grouped(measured.front()->tokens), Grouped(sample->tokens))};
  }
  return std::nullopt;
}

Finding JudgeProcess(const GrowthFigures& figures) {
  const std::optional<Slope>& slope =
      figures.process_witness == "anonymous" ? figures.slopes.anonymous : figures.slopes.resident;
  const int64_t samples = static_cast<int64_t>(Measured(figures).size());
  if (!slope)
    return {
        GrowthVerdict::kUndecided,
        fmt::format(
            "{} samples of the process's memory after the warm-up give no slope; go on to a higher position",
            samples)};
  const std::string interval = fmt::format(
      "the process's {} memory: {:.3f} bytes per token and session, 95 % interval {:.3f} to {:.3f}, over {} "
      "tokens in {} samples",
      figures.process_witness, slope->bytes_per_token, slope->low, slope->high,
      Grouped(static_cast<int64_t>(slope->span)), samples);
  const auto missing =
      std::max(MissingTokens(*slope, kGrowthLimit), static_cast<double>(kLeastGrowthSpan) - slope->span);
  switch (JudgeSlope(*slope, kGrowthLimit)) {
    case SlopeVerdict::kAbove:
      // Over a short way a heap that fills is no leak yet.
      if (slope->span >= static_cast<double>(kLeastGrowthSpan)) return {GrowthVerdict::kGrows, interval};
      break;
    case SlopeVerdict::kUndecided:
      break;
    case SlopeVerdict::kBelow:
      if (missing <= 0 && samples >= kLeastGrowthSamples) return {GrowthVerdict::kConstant, interval};
      if (missing <= 0)
        return {GrowthVerdict::kUndecided,
                fmt::format("{}: undecided, a verdict needs {} samples; take smaller pieces", interval,
                            kLeastGrowthSamples)};
      break;
  }
  return {GrowthVerdict::kUndecided,
          fmt::format("{}: undecided, needs about {} more tokens, over all sessions", interval,
                      Grouped(static_cast<int64_t>(std::ceil(missing))))};
}

Finding JudgeFixed(const StateShape& shape, const GrowthFigures& figures) {
  if (std::optional<Finding> finding = AccountingDiffers(shape, figures)) return *std::move(finding);
  if (std::optional<Finding> finding = ArenaMoves(figures)) return *std::move(finding);
  if (figures.slopes.device && JudgeSlope(*figures.slopes.device, kGrowthLimit) == SlopeVerdict::kAbove)
    return {GrowthVerdict::kGrows,
            fmt::format("the device's memory grows by {:.3f} bytes per token and session (95 % "
                        "interval {:.3f} to {:.3f})",
                        figures.slopes.device->bytes_per_token, figures.slopes.device->low,
                        figures.slopes.device->high)};
  Finding finding = JudgeProcess(figures);
  if (finding.verdict == GrowthVerdict::kConstant)
    finding.why = fmt::format("accounting and arena do not move by a byte; {}", finding.why);
  return finding;
}

// The arena against the sum over the sessions, which stand at the same position whenever nothing runs.
Finding JudgePaged(const StateShape& shape, const GrowthFigures& figures) {
  if (std::optional<Finding> finding = AccountingDiffers(shape, figures)) return *std::move(finding);
  const std::vector<const MemorySample*> measured = Measured(figures);
  for (const MemorySample* sample : measured) {
    const double expected = static_cast<double>(figures.sessions * shape.fixed_bytes) +
                            static_cast<double>(sample->tokens) * shape.BytesPerToken();
    const double over = static_cast<double>(sample->arena) - expected;
    if (over >= 0 && over <= static_cast<double>(figures.sessions * shape.block_bytes)) continue;
    return {
        over > 0 ? GrowthVerdict::kGrows : GrowthVerdict::kUndecided,
        fmt::format(
            "the arena holds {} bytes at {} tokens, the shapes say {} and at most one block per session more",
            Grouped(sample->arena), Grouped(sample->tokens), Grouped(std::llround(expected)))};
  }
  if (measured.size() < 2 || !figures.slopes.arena)
    return {GrowthVerdict::kUndecided, "too few samples after the warm-up; go on to a higher position"};
  return {
      GrowthVerdict::kAsExpected,
      fmt::format(
          "the arena grew by {:.1f} bytes per token and session, the shapes say {:.1f}; it was never more "
          "than one block per session off",
          figures.slopes.arena->bytes_per_token, shape.BytesPerToken())};
}

std::string FailureOf(const StateShape& shape, const GrowthFigures& figures) {
  if (figures.stopped && !(shape.paged && figures.stopped->refusal))
    return fmt::format("ended at position {} of {}: {}", Grouped(figures.stopped->position),
                       Grouped(figures.last_position), figures.stopped->message);
  if (figures.verdict == GrowthVerdict::kConstant || figures.verdict == GrowthVerdict::kAsExpected) return "";
  return figures.why;
}

}  // namespace

std::string_view GrowthVerdictName(GrowthVerdict verdict) {
  switch (verdict) {
    case GrowthVerdict::kConstant:
      return "constant";
    case GrowthVerdict::kAsExpected:
      return "as_expected";
    case GrowthVerdict::kGrows:
      return "grows";
    case GrowthVerdict::kUndecided:
      break;
  }
  return "undecided";
}

void JudgeGrowth(const StateShape& shape, GrowthFigures* figures) {
  std::vector<SlopePoint> accounted;
  for (const AccountedBytes& read : figures->accounted)
    accounted.push_back({static_cast<double>(read.position), static_cast<double>(read.bytes)});
  if (const absl::StatusOr<Slope> slope = FitSlope(accounted); slope.ok()) figures->session_slope = *slope;
  figures->slopes = FitWitnesses(figures->samples);
  figures->expected_bytes_per_token = shape.BytesPerToken();
  figures->process_witness = figures->slopes.anonymous ? "anonymous" : "resident";
  Finding finding = shape.paged ? JudgePaged(shape, *figures) : JudgeFixed(shape, *figures);
  figures->verdict = finding.verdict;
  figures->why = std::move(finding.why);
  figures->failure = FailureOf(shape, *figures);
}

}  // namespace weir
