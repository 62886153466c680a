#include "client/loadtest/report_table.h"

#include <vector>

#include "client/loadtest/capacity_report.h"
#include "client/loadtest/growth_report.h"
#include "client/loadtest/text_table.h"
#include "fmt/format.h"

namespace weir {
namespace {

using Cells = std::vector<std::string>;

std::string LoadText(const TrafficFigures& f) {
  std::string text = f.concurrency ? fmt::format("{} at once", *f.concurrency)
                                   : fmt::format("{}/s {}", ShortNumber(f.rate.value_or(0)), f.arrivals);
  if (f.turns > 1) text += fmt::format(" x{} turns", f.turns);
  return text;
}

Cells TrafficCells(const std::string& model, const TrafficFigures& f) {
  return {model,
          LoadText(f),
          fmt::format("{}", f.completed),
          fmt::format("{}", f.failed + f.empty + f.cancelled),
          ShortNumber(f.requests_per_second.value_or(-1)),
          ShortNumber(f.goodput_per_second.value_or(-1)),
          ShortNumber(f.tokens_per_second.value_or(-1)),
          PartText(f.ttft_ms, &Distribution::p50),
          PartText(f.ttft_ms, &Distribution::p99),
          PartText(f.itl_ms, &Distribution::p50),
          PartText(f.itl_ms, &Distribution::p99),
          PartText(f.tpot_ms, &Distribution::p50),
          PartText(f.e2e_ms, &Distribution::p50),
          PartText(f.e2e_ms, &Distribution::p99)};
}

// What the table has no column for, a line each.
std::string TrafficNotes(const std::string& model, const TrafficFigures& f) {
  std::string text;
  const std::string of = fmt::format("{}, {}: ", model, LoadText(f));
  if (f.empty > 0) text += fmt::format("{}{} empty: OK without a token\n", of, f.empty);
  if (f.cancelled > 0)
    text += fmt::format("{}{} cancelled, as the test ended before they did\n", of, f.cancelled);
  for (const auto& [reason, count] : f.errors) {
    const auto message = f.error_messages.find(reason);
    text += fmt::format("{}{} {}{}\n", of, count, reason,
                        message == f.error_messages.end() ? "" : ": " + message->second);
  }
  if (f.server_generated_tokens && *f.server_generated_tokens != f.all_generated_tokens)
    text += fmt::format(
        "{}the server counted {} generated tokens, {} arrived: it has other clients, or turns were cut off\n",
        of, *f.server_generated_tokens, f.all_generated_tokens);
  if (f.completed > 0 && f.requests_per_second == 0.0)
    text +=
        fmt::format("{}no request was completed within the measured {} s: a longer --duration says more\n",
                    of, ShortNumber(f.seconds));
  // A load test that sends late measures itself; latencies are counted from the schedule all the same. A
  // burst that begins a closed loop takes its time.
  if (f.send_lag_ms.p99 > 10 && f.send_lag_ms.p99 > 0.1 * f.ttft_ms.p50)
    text += fmt::format(
        "{}requests were sent late by the load test itself, 1 % of them by more than {} ms: it lacks a "
        "processor\n",
        of, ShortNumber(f.send_lag_ms.p99));
  return text;
}

std::string TrafficTable(const Report& report) {
  std::vector<Cells> rows = {{"MODEL", "LOAD", "DONE", "NOT", "REQ/S", "GOOD/S", "TOK/S", "TTFT p50", "p99",
                              "ITL p50", "p99", "TPOT p50", "E2E p50", "p99"}};
  std::string notes;
  const auto add = [&](const std::string& model, const TrafficFigures& figures) {
    rows.push_back(TrafficCells(model, figures));
    notes += TrafficNotes(model, figures);
  };
  for (const ModelReport& model : report.models)
    for (const TrafficFigures& figures : model.traffic) add(model.name, figures);
  for (const MixedFigures& mixed : report.mixed) {
    for (const auto& [name, figures] : mixed.models) add(name, figures);
    rows.push_back(TrafficCells("all", mixed.all));
  }
  if (rows.size() == 1) return "";
  return TextTable(rows) + "Times in ms, from when a request was due; NOT: failed, empty or cancelled.\n" +
         notes;
}

}  // namespace

std::string ReportTable(const Report& report) {
  std::string text = fmt::format("weir loadtest: {} (weir {}, {}, {} compute threads), seed {}, {:.1f} s\n\n",
                                 report.server_address, report.server_version, report.server_device,
                                 report.server_compute_threads, report.seed, report.seconds);
  text += TrafficTable(report);
  for (const ModelReport& model : report.models) {
    if (model.growth) text += GrowthText(model.name, *model.growth);
    if (model.capacity) text += CapacityText(model.name, *model.capacity);
  }
  for (const ModelReport& model : report.models)
    text += BreakEvenText(model.name, model.fixed_bytes, model.break_even);
  return text;
}

}  // namespace weir
