#include "client/loadtest/report_json.h"

#include <optional>

#include "client/loadtest/capacity_report.h"
#include "client/loadtest/growth_report.h"

namespace weir {
namespace {

using ReportObject = nlohmann::ordered_json;

constexpr int kSchema = 1;

// Objects, also where there is nothing in them.
template <class T>
ReportObject MapJson(const std::map<std::string, T>& values) {
  ReportObject json = ReportObject::object();
  for (const auto& [key, value] : values) json[key] = value;
  return json;
}

ReportObject TimelineJson(const std::vector<TimelineSecond>& timeline) {
  ReportObject json = ReportObject::array();
  for (const TimelineSecond& second : timeline)
    json.push_back({{"second", second.second},
                    {"tokens", second.tokens},
                    {"running", second.running},
                    {"ttft_p50_ms", OrNull(second.ttft_p50_ms)}});
  return json;
}

ReportObject TrafficJson(const TrafficFigures& f) {
  return {{"arrivals", f.arrivals},
          {"concurrency", OrNull(f.concurrency)},
          {"rate", OrNull(f.rate)},
          {"turns", f.turns},
          {"seconds", f.seconds},
          {"drain_seconds", f.drain_seconds},
          {"requests",
           {{"scheduled", f.scheduled},
            {"completed", f.completed},
            {"cancelled", f.cancelled},
            {"failed", f.failed},
            {"empty", f.empty}}},
          {"errors", MapJson(f.errors)},
          {"error_messages", MapJson(f.error_messages)},
          {"tokens",
           {{"prompt", f.prompt_tokens},
            {"generated", f.generated_tokens},
            {"in_time", f.tokens_in_time},
            {"with_warmup", f.all_generated_tokens}}},
          {"server_tokens",
           {{"prompt", OrNull(f.server_prompt_tokens)}, {"generated", OrNull(f.server_generated_tokens)}}},
          {"tokens_per_second", OrNull(f.tokens_per_second)},
          {"requests_per_second", OrNull(f.requests_per_second)},
          {"goodput_per_second", OrNull(f.goodput_per_second)},
          {"ttft_ms", DistributionJson(f.ttft_ms)},
          {"first_text_ms", DistributionJson(f.first_text_ms)},
          {"itl_ms", DistributionJson(f.itl_ms)},
          {"tpot_ms", DistributionJson(f.tpot_ms)},
          {"e2e_ms", DistributionJson(f.e2e_ms)},
          {"send_lag_ms", DistributionJson(f.send_lag_ms)},
          {"stream_tokens_per_second", DistributionJson(f.stream_tokens_per_second)},
          {"timeline", TimelineJson(f.timeline)}};
}

ReportObject ModelJson(const ModelReport& model) {
  ReportObject traffic = ReportObject::array();
  for (const TrafficFigures& figures : model.traffic) traffic.push_back(TrafficJson(figures));
  return {{"name", model.name},
          {"mixer", model.mixer},
          {"architecture", model.architecture},
          {"parameters", model.parameters},
          {"weight_dtype", model.weight_dtype},
          {"state",
           {{"kind", model.paged ? "paged" : "fixed"},
            {"fixed_bytes", model.fixed_bytes},
            {"block_bytes", model.block_bytes},
            {"block_tokens", model.block_tokens}}},
          {"traffic", std::move(traffic)},
          {"growth", model.growth ? GrowthJson(*model.growth) : nullptr},
          {"break_even", BreakEvenJson(model.break_even)},
          {"capacity", model.capacity ? CapacityJson(*model.capacity) : nullptr}};
}

ReportObject MixedJson(const std::vector<MixedFigures>& mixed) {
  if (mixed.empty()) return nullptr;
  ReportObject json = ReportObject::array();
  for (const MixedFigures& figures : mixed) {
    ReportObject phase = TrafficJson(figures.all);
    phase["models"] = ReportObject::object();
    for (const auto& [name, of_model] : figures.models) phase["models"][name] = TrafficJson(of_model);
    json.push_back(std::move(phase));
  }
  return json;
}

}  // namespace

nlohmann::ordered_json DistributionJson(const Distribution& d) {
  // A figure of nothing is none.
  const auto part = [&](double value) { return d.count == 0 ? ReportObject(nullptr) : ReportObject(value); };
  return {{"count", d.count},   {"mean", part(d.mean)}, {"p50", part(d.p50)}, {"p90", part(d.p90)},
          {"p99", part(d.p99)}, {"p999", part(d.p999)}, {"max", part(d.max)}};
}

nlohmann::ordered_json ReportJson(const Report& report) {
  ReportObject models = ReportObject::array();
  for (const ModelReport& model : report.models) models.push_back(ModelJson(model));
  return {{"weir_loadtest", kSchema},
          {"started", report.started},
          {"seconds", report.seconds},
          {"command", report.command},
          {"seed", report.seed},
          {"server",
           {{"address", report.server_address},
            {"version", report.server_version},
            {"device", report.server_device},
            {"compute_threads", report.server_compute_threads}}},
          {"limits",
           {{"ttft_ms", OrNull(report.limits.ttft_ms)},
            {"tpot_ms", OrNull(report.limits.tpot_ms)},
            {"e2e_ms", OrNull(report.limits.e2e_ms)}}},
          {"models", std::move(models)},
          {"mixed", MixedJson(report.mixed)},
          {"passed", report.failures.empty()},
          {"failures", report.failures}};
}

}  // namespace weir
