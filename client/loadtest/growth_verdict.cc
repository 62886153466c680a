#include <algorithm>
#include <cmath>
#include <utility>

#include "client/loadtest/growth_figures.h"
#include "client/loadtest/text_table.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace weir {
namespace {

struct Finding {
  GrowthVerdict verdict = GrowthVerdict::kUndecided;
  std::string why;
  bool contradiction = false;  // of what the server counts to what the shapes say, in whichever direction
};

// The first reading that is not what the shapes say, if there is one.
std::optional<Finding> AccountingDiffers(const GrowthFigures& figures) {
  const StateShape& shape = figures.way.shape;
  const int64_t slack = shape.paged ? shape.block_bytes : 0;
  for (const AccountedBytes& read : figures.accounted) {
    const int64_t expected = shape.BytesAt(read.position);
    if (std::abs(read.bytes - expected) <= slack) continue;
    return Finding{
        read.bytes > expected ? GrowthVerdict::kGrows : GrowthVerdict::kUndecided,
        fmt::format("the server accounts {} bytes to a session at position {}, the shapes say {}",
                    GroupedNumber(read.bytes), GroupedNumber(read.position), GroupedNumber(expected)),
        /*contradiction=*/true};
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
                    "came or went",
                    GroupedNumber(measured.front()->arena), GroupedNumber(sample->arena),
                    GroupedNumber(measured.front()->tokens), GroupedNumber(sample->tokens)),
        /*contradiction=*/true};
  }
  return std::nullopt;
}

// " 95 % interval 0.1 to 0.3", or that there are too few samples for one.
std::string IntervalText(const Slope& slope) {
  return slope.has_interval() ? fmt::format("95 % interval {:.3f} to {:.3f}", slope.low, slope.high)
                              : fmt::format("{} samples give no interval", slope.count);
}

Finding JudgeProcess(const GrowthFigures& figures) {
  const std::optional<Slope>& slope =
      figures.process_witness == "anonymous" ? figures.slopes.anonymous : figures.slopes.resident;
  const auto undecided = [&](const std::string& found, double wanted_span) {
    return Finding{GrowthVerdict::kUndecided,
                   fmt::format("{}; for a verdict {}", found, GrowthRemedy(figures.way, wanted_span))};
  };
  if (!slope)
    return undecided(fmt::format("{} samples of the process's memory after the warm-up give no slope",
                                 Measured(figures).size()),
                     kLeastGrowthSpan);
  const std::string found = fmt::format(
      "the process's {} memory: {:.3f} bytes per token and session, {}, over {} tokens in {} samples",
      figures.process_witness, slope->bytes_per_token, IntervalText(*slope),
      GroupedNumber(static_cast<int64_t>(slope->span)), slope->count);
  // Over a short way a heap that fills is no leak yet, and one that does not move is no proof.
  const bool enough =
      slope->span >= static_cast<double>(kLeastGrowthSpan) && slope->count >= kLeastGrowthSamples;
  const SlopeVerdict verdict = JudgeSlope(*slope, kGrowthLimit);
  if (enough && verdict == SlopeVerdict::kAbove) return {GrowthVerdict::kGrows, found};
  if (enough && verdict == SlopeVerdict::kBelow) return {GrowthVerdict::kConstant, found};
  if (verdict != SlopeVerdict::kUndecided) return undecided(found, kLeastGrowthSpan);
  return undecided(found, std::max(slope->span + MissingTokens(*slope, kGrowthLimit),
                                   static_cast<double>(kLeastGrowthSpan)));
}

std::optional<Finding> DeviceGrows(const GrowthFigures& figures) {
  const std::optional<Slope>& slope = figures.slopes.device;
  if (!slope || !slope->has_interval() || JudgeSlope(*slope, kGrowthLimit) != SlopeVerdict::kAbove)
    return std::nullopt;
  return Finding{GrowthVerdict::kGrows,
                 fmt::format("the device's memory grows by {:.3f} bytes per token and session, {}",
                             slope->bytes_per_token, IntervalText(*slope))};
}

std::optional<Finding> OthersWorked(const GrowthFigures& figures) {
  if (figures.other_clients.empty()) return std::nullopt;
  return Finding{
      GrowthVerdict::kUndecided,
      fmt::format(
          "another client worked on the server ({}), and memory does not tell whose it is: run it alone",
          figures.other_clients)};
}

Finding JudgeFixed(const GrowthFigures& figures) {
  if (std::optional<Finding> finding = ArenaMoves(figures)) return *std::move(finding);
  if (std::optional<Finding> finding = DeviceGrows(figures)) return *std::move(finding);
  Finding finding = JudgeProcess(figures);
  if (finding.verdict == GrowthVerdict::kConstant)
    finding.why = fmt::format("accounting and arena do not move by a byte; {}", finding.why);
  return finding;
}

// The arena against the sum over the sessions, which stand at the same position whenever nothing runs.
Finding JudgePaged(const GrowthFigures& figures) {
  const StateShape& shape = figures.way.shape;
  const std::vector<const MemorySample*> measured = Measured(figures);
  for (const MemorySample* sample : measured) {
    const double expected =
        static_cast<double>(figures.others_arena + figures.way.sessions * shape.fixed_bytes) +
        static_cast<double>(sample->tokens) * shape.BytesPerToken();
    const double over = static_cast<double>(sample->arena) - expected;
    if (over >= 0 && over <= static_cast<double>(figures.way.sessions * shape.block_bytes)) continue;
    return {
        over > 0 ? GrowthVerdict::kGrows : GrowthVerdict::kUndecided,
        fmt::format(
            "the arena holds {} bytes at {} tokens, the shapes say {} and at most one block per session more",
            GroupedNumber(sample->arena), GroupedNumber(sample->tokens),
            GroupedNumber(std::llround(expected))),
        /*contradiction=*/true};
  }
  if (!figures.slopes.arena)
    return {GrowthVerdict::kUndecided,
            fmt::format("{} samples after the warm-up give no slope; for a verdict {}", measured.size(),
                        GrowthRemedy(figures.way, 1))};
  return {
      GrowthVerdict::kAsExpected,
      fmt::format(
          "the arena grew by {:.1f} bytes per token and session, the shapes say {:.1f}; it was never more "
          "than one block per session off",
          figures.slopes.arena->bytes_per_token, shape.BytesPerToken())};
}

Finding Judge(const GrowthFigures& figures) {
  if (std::optional<Finding> finding = AccountingDiffers(figures)) return *std::move(finding);
  if (std::optional<Finding> finding = OthersWorked(figures)) return *std::move(finding);
  return figures.way.shape.paged ? JudgePaged(figures) : JudgeFixed(figures);
}

std::string EndText(const GrowthFigures& figures) {
  return fmt::format("ended at position {} of {}: {}", GroupedNumber(figures.stopped->position),
                     GroupedNumber(figures.way.positions.back()), figures.stopped->message);
}

void SetOutcome(bool contradiction, GrowthFigures* figures) {
  const std::optional<GrowthStop>& stopped = figures->stopped;
  figures->failure.clear();
  if (figures->verdict == GrowthVerdict::kConstant || figures->verdict == GrowthVerdict::kAsExpected) {
    figures->outcome = GrowthOutcome::kPassed;
  } else {
    const bool grows = figures->verdict == GrowthVerdict::kGrows;
    figures->outcome = grows || contradiction ? GrowthOutcome::kFailed : GrowthOutcome::kUndecided;
    // More tokens would not have helped.
    if (stopped && figures->outcome == GrowthOutcome::kUndecided && figures->other_clients.empty())
      figures->why = EndText(*figures) + "; that is too early for a verdict";
    figures->failure = figures->why;
  }
  // Paged state may be refused more room; else the end has a reason that is not memory's.
  if (!stopped || (figures->way.shape.paged && stopped->refusal)) return;
  figures->outcome = GrowthOutcome::kFailed;
  figures->failure = EndText(*figures);
}

std::string PositionsText(const std::vector<int64_t>& positions) {
  std::vector<std::string> numbers;
  for (const int64_t position : positions) numbers.push_back(GroupedNumber(position));
  const std::string last = numbers.back();
  numbers.pop_back();
  return numbers.empty() ? "position " + last
                         : fmt::format("positions {} and {}", fmt::join(numbers, ", "), last);
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

std::string_view GrowthOutcomeName(GrowthOutcome outcome) {
  switch (outcome) {
    case GrowthOutcome::kPassed:
      return "passed";
    case GrowthOutcome::kUndecided:
      return "undecided";
    case GrowthOutcome::kFailed:
      break;
  }
  return "failed";
}

void JudgeGrowth(GrowthFigures* figures) {
  std::vector<SlopePoint> accounted;
  for (const AccountedBytes& read : figures->accounted)
    accounted.push_back({static_cast<double>(read.position), static_cast<double>(read.bytes)});
  if (const absl::StatusOr<Slope> slope = FitSlope(accounted); slope.ok()) {
    figures->session_slope = *slope;
    figures->session_slope->counted = true;
  }
  figures->slopes = FitWitnesses(figures->samples);
  figures->expected_bytes_per_token = figures->way.shape.BytesPerToken();
  figures->process_witness = figures->slopes.anonymous ? "anonymous" : "resident";
  Finding finding = Judge(*figures);
  figures->verdict = finding.verdict;
  figures->why = std::move(finding.why);
  SetOutcome(finding.contradiction, figures);
}

void JudgeCutShort(const std::string& what, int64_t position, GrowthOutcome outcome, GrowthFigures* figures) {
  const std::vector<int64_t>& wanted = figures->way.positions;
  const auto reached = static_cast<std::ptrdiff_t>(figures->points.size());
  std::string measured = "nothing was measured";
  if (reached > 0) {
    measured = fmt::format("measured: {}", PositionsText({wanted.begin(), wanted.begin() + reached}));
    if (reached < static_cast<std::ptrdiff_t>(wanted.size()))
      measured += fmt::format("; not measured: {}", PositionsText({wanted.begin() + reached, wanted.end()}));
  }
  figures->verdict = GrowthVerdict::kUndecided;
  figures->outcome = outcome;
  figures->why = figures->failure =
      fmt::format("{} with the sessions at position {} of {}: no verdict; {}", what, GroupedNumber(position),
                  GroupedNumber(wanted.back()), measured);
}

}  // namespace weir
