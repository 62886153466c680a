#include "client/loadtest/growth_report.h"

#include <algorithm>
#include <utility>

#include "client/loadtest/report_json.h"
#include "client/loadtest/text_table.h"
#include "fmt/format.h"

namespace weir {
namespace {

using GrowthObject = nlohmann::ordered_json;

// 0 stands for a figure that the server does not tell.
GrowthObject KnownOrNull(int64_t bytes) { return bytes > 0 ? GrowthObject(bytes) : GrowthObject(nullptr); }

GrowthObject SlopeJson(const std::optional<Slope>& slope) {
  if (!slope) return nullptr;
  const auto end = [&](double value) {
    return slope->has_interval() ? GrowthObject(value) : GrowthObject(nullptr);
  };
  return {{"bytes_per_token", slope->bytes_per_token},
          {"low", end(slope->low)},
          {"high", end(slope->high)},
          {"exact", slope->exact()},
          {"samples", slope->count},
          {"effective_samples", slope->effective_count}};
}

GrowthObject TimePerTokenJson(const std::optional<TimePerToken>& itl) {
  if (!itl) return nullptr;
  GrowthObject json = DistributionJson(itl->ms);
  json["p10"] = itl->p10_ms;
  return json;
}

GrowthObject PointJson(const GrowthPoint& point) {
  const MemorySample& sample = point.sample;
  return {{"position", point.position},
          {"session_bytes", point.session_bytes},
          {"arena_bytes", sample.arena},
          {"process_resident_bytes", sample.resident},
          {"process_proportional_bytes", KnownOrNull(sample.proportional)},
          {"process_anonymous_bytes", KnownOrNull(sample.anonymous)},
          {"device_bytes", OrNull(sample.device)},
          {"tokens", sample.tokens},
          {"itl_ms", TimePerTokenJson(point.itl)}};
}

GrowthObject SampleJson(const MemorySample& sample) {
  return {{"seconds", absl::ToDoubleSeconds(sample.at)},
          {"tokens", sample.tokens},
          {"at_rest", sample.at_rest},
          {"measured", sample.measured},
          {"arena", sample.arena},
          {"resident", sample.resident},
          {"proportional", KnownOrNull(sample.proportional)},
          {"anonymous", KnownOrNull(sample.anonymous)},
          {"device", OrNull(sample.device)}};
}

std::string ItlCell(const std::optional<TimePerToken>& itl, double Distribution::*part) {
  return itl ? ShortNumber(itl->ms.*part) : "-";
}

std::string Mebibytes(int64_t bytes) {
  return bytes > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20)) : "-";
}

std::vector<std::string> SlopeCells(const std::string& witness, const std::optional<Slope>& slope,
                                    size_t samples) {
  const std::string count = fmt::format("{}", samples);
  if (!slope) return {"  " + witness, "-", "-", "-", count};
  const std::string value = fmt::format("{:.3f}", slope->bytes_per_token);
  if (slope->exact()) return {"  " + witness, value, "exact", "exact", count};
  if (!slope->has_interval()) return {"  " + witness, value, "too few", "too few", count};
  return {"  " + witness, value, fmt::format("{:.3f}", slope->low), fmt::format("{:.3f}", slope->high),
          count};
}

std::string SlopeTable(const GrowthFigures& figures) {
  const auto measured =
      static_cast<size_t>(std::count_if(figures.samples.begin(), figures.samples.end(),
                                        [](const MemorySample& sample) { return sample.measured; }));
  const WitnessSlopes& slopes = figures.slopes;
  std::vector<std::vector<std::string>> rows = {
      {"  bytes per token and session", "slope", "95 % low", "95 % high", "samples"},
      {"  expected from the shapes", fmt::format("{:.3f}", figures.expected_bytes_per_token), "", "", ""},
      SlopeCells("accounting, one session", figures.session_slope, figures.accounted.size()),
      SlopeCells("arena", slopes.arena, measured),
      SlopeCells("process, anonymous", slopes.anonymous, measured),
      SlopeCells("process, resident", slopes.resident, measured),
      SlopeCells("process, proportional", slopes.proportional, measured)};
  if (slopes.device) rows.push_back(SlopeCells("device", slopes.device, measured));
  return TextTable(rows);
}

// So that a verdict is seen before it is read.
std::string_view VerdictMark(GrowthOutcome outcome) {
  switch (outcome) {
    case GrowthOutcome::kPassed:
      return "[ok]";
    case GrowthOutcome::kUndecided:
      return "[??]";
    case GrowthOutcome::kFailed:
      break;
  }
  return "[!!]";
}

}  // namespace

nlohmann::ordered_json GrowthJson(const GrowthFigures& figures) {
  GrowthObject points = GrowthObject::array(), samples = GrowthObject::array(), stopped = nullptr;
  for (const GrowthPoint& point : figures.points) points.push_back(PointJson(point));
  for (const MemorySample& sample : figures.samples) samples.push_back(SampleJson(sample));
  if (figures.stopped)
    stopped = {{"position", figures.stopped->position},
               {"reason", figures.stopped->reason},
               {"message", figures.stopped->message}};
  return {{"sessions", figures.way.sessions},
          {"how", figures.by_append ? "append" : "generate"},
          {"points", std::move(points)},
          {"samples", std::move(samples)},
          {"slope",
           {{"session", SlopeJson(figures.session_slope)},
            {"arena", SlopeJson(figures.slopes.arena)},
            {"resident", SlopeJson(figures.slopes.resident)},
            {"proportional", SlopeJson(figures.slopes.proportional)},
            {"anonymous", SlopeJson(figures.slopes.anonymous)},
            {"device", SlopeJson(figures.slopes.device)}}},
          {"judged", figures.process_witness},
          {"expected_bytes_per_token", figures.expected_bytes_per_token},
          {"verdict", GrowthVerdictName(figures.verdict)},
          {"outcome", GrowthOutcomeName(figures.outcome)},
          {"why", figures.why},
          {"other_clients",
           figures.other_clients.empty() ? GrowthObject(nullptr) : GrowthObject(figures.other_clients)},
          {"stopped", std::move(stopped)}};
}

nlohmann::ordered_json BreakEvenJson(const std::vector<BreakEven>& break_even) {
  GrowthObject json = GrowthObject::array();
  for (const BreakEven& pair : break_even)
    json.push_back({{"against", pair.against}, {"tokens", pair.tokens}});
  return json;
}

std::string GrowthText(const std::string& model, const GrowthFigures& figures) {
  std::vector<std::vector<std::string>> rows = {{"POSITION", "SESSION bytes", "ARENA MiB", "RSS MiB",
                                                 "PSS MiB", "ANON MiB", "DEVICE MiB", "ITL mean", "p10",
                                                 "p90", "p99"}};
  for (const GrowthPoint& point : figures.points)
    rows.push_back({fmt::format("{}", point.position), fmt::format("{}", point.session_bytes),
                    Mebibytes(point.sample.arena), Mebibytes(point.sample.resident),
                    Mebibytes(point.sample.proportional), Mebibytes(point.sample.anonymous),
                    Mebibytes(point.sample.device.value_or(0)), ItlCell(point.itl, &Distribution::mean),
                    point.itl ? ShortNumber(point.itl->p10_ms) : "-", ItlCell(point.itl, &Distribution::p90),
                    ItlCell(point.itl, &Distribution::p99)});
  std::string text = fmt::format("{}: {} sessions grown by {}; ITL: ms per token, all of them generating\n",
                                 model, figures.way.sessions, figures.by_append ? "append" : "generate");
  text += TextTable(rows) + SlopeTable(figures);
  if (figures.stopped && !figures.stopped->lost)
    text += fmt::format("  ended at position {}: {} ({})\n", figures.stopped->position,
                        figures.stopped->message, figures.stopped->reason);
  return text + fmt::format("  {} verdict: {}: {}\n", VerdictMark(figures.outcome),
                            GrowthVerdictName(figures.verdict), figures.why);
}

std::string BreakEvenText(const std::string& model, int64_t fixed_bytes,
                          const std::vector<BreakEven>& break_even) {
  std::string text;
  for (const BreakEven& pair : break_even) {
    if (pair.tokens == 0)
      text += fmt::format("{}: {} bytes a session, which {} needs before its first token\n", model,
                          fixed_bytes, pair.against);
    else
      text += fmt::format(
          "{}: {} bytes a session at every position; {} needs less up to position {}, and as much or "
          "more from {} on\n",
          model, fixed_bytes, pair.against, pair.tokens - 1, pair.tokens);
  }
  return text;
}

}  // namespace weir
