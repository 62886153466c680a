#include "client/loadtest/report_csv.h"

#include <functional>
#include <vector>

#include "fmt/format.h"

namespace weir {
namespace {

// One line: what it is about, and the figures of it that there are.
struct CsvRow {
  const Report* report = nullptr;
  std::string model;
  std::string mixer;
  std::string phase;
  const TrafficFigures* traffic = nullptr;
  const GrowthFigures* growth = nullptr;
  const CapacityFigures* capacity = nullptr;
};

struct CsvColumn {
  std::string name;
  std::function<std::string(const CsvRow&)> value;
};

std::string Quote(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

template <class T>
std::string OrEmpty(const std::optional<T>& value) {
  return value ? fmt::format("{}", *value) : "";
}

// A figure of nothing is none.
std::string PartOf(const Distribution& values, double Distribution::*part) {
  return values.count == 0 ? "" : fmt::format("{}", values.*part);
}

std::string ErrorsText(const std::map<std::string, int64_t>& errors) {
  std::string text;
  for (const auto& [reason, count] : errors)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", reason, count);
  return text;
}

// Columns of traffic: empty for other phases.
class TrafficColumns {
 public:
  explicit TrafficColumns(std::vector<CsvColumn>* columns) : columns_(columns) {}

  template <class T>
  void Field(const std::string& name, T TrafficFigures::*field) {
    Value(name, [field](const TrafficFigures& figures) { return fmt::format("{}", figures.*field); });
  }
  template <class T>
  void Field(const std::string& name, std::optional<T> TrafficFigures::*field) {
    Value(name, [field](const TrafficFigures& figures) { return OrEmpty(figures.*field); });
  }
  // NAME_count_UNIT and so on would say the unit of a count.
  void Spread(const std::string& name, const std::string& unit, Distribution TrafficFigures::*field) {
    Value(name + "_count",
          [field](const TrafficFigures& figures) { return fmt::format("{}", (figures.*field).count); });
    static constexpr std::pair<const char*, double Distribution::*> kParts[] = {
        {"mean", &Distribution::mean}, {"p50", &Distribution::p50},   {"p90", &Distribution::p90},
        {"p99", &Distribution::p99},   {"p999", &Distribution::p999}, {"max", &Distribution::max}};
    for (const auto& [part, member] : kParts)
      Value(
          fmt::format("{}_{}_{}", name, part, unit),
          [field, member = member](const TrafficFigures& figures) { return PartOf(figures.*field, member); });
  }
  void Value(const std::string& name, std::function<std::string(const TrafficFigures&)> value) {
    columns_->push_back({name, [value = std::move(value)](const CsvRow& row) {
                           return row.traffic == nullptr ? "" : value(*row.traffic);
                         }});
  }

 private:
  std::vector<CsvColumn>* const columns_;
};

void AddGrowthColumns(std::vector<CsvColumn>* columns) {
  const auto add = [&](const std::string& name, std::function<std::string(const GrowthFigures&)> value) {
    columns->push_back({name, [value = std::move(value)](const CsvRow& row) {
                          return row.growth == nullptr ? "" : value(*row.growth);
                        }});
  };
  const auto add_slope = [&](const std::string& witness,
                             std::function<std::optional<Slope>(const GrowthFigures&)> of) {
    static constexpr std::pair<const char*, double Slope::*> kParts[] = {
        {"", &Slope::bytes_per_token}, {"_low", &Slope::low}, {"_high", &Slope::high}};
    for (const auto& [part, member] : kParts)
      add(fmt::format("{}_bytes_per_token{}", witness, part),
          [of, member = member](const GrowthFigures& figures) {
            const std::optional<Slope> slope = of(figures);
            const bool told = slope && (member == &Slope::bytes_per_token || slope->has_interval());
            return told ? fmt::format("{}", (*slope).*member) : "";
          });
  };
  add("growth_sessions",
      [](const GrowthFigures& figures) { return fmt::format("{}", figures.way.sessions); });
  add("growth_position", [](const GrowthFigures& figures) {
    return figures.points.empty() ? "" : fmt::format("{}", figures.points.back().position);
  });
  const auto add_itl = [&](const std::string& part, std::function<double(const TimePerToken&)> of) {
    add(fmt::format("growth_itl_{}_ms", part), [of](const GrowthFigures& figures) {
      const bool timed = !figures.points.empty() && figures.points.back().itl;
      return timed ? fmt::format("{}", of(*figures.points.back().itl)) : "";
    });
  };
  add_itl("mean", [](const TimePerToken& itl) { return itl.ms.mean; });
  add_itl("p10", [](const TimePerToken& itl) { return itl.p10_ms; });
  add_itl("p90", [](const TimePerToken& itl) { return itl.ms.p90; });
  add_itl("p99", [](const TimePerToken& itl) { return itl.ms.p99; });
  add("growth_verdict",
      [](const GrowthFigures& figures) { return std::string(GrowthVerdictName(figures.verdict)); });
  add("growth_outcome",
      [](const GrowthFigures& figures) { return std::string(GrowthOutcomeName(figures.outcome)); });
  add("growth_other_clients", [](const GrowthFigures& figures) { return figures.other_clients; });
  add("growth_stopped_with",
      [](const GrowthFigures& figures) { return figures.stopped ? figures.stopped->reason : ""; });
  add("expected_bytes_per_token",
      [](const GrowthFigures& figures) { return fmt::format("{}", figures.expected_bytes_per_token); });
  add_slope("session", [](const GrowthFigures& figures) { return figures.session_slope; });
  add_slope("arena", [](const GrowthFigures& figures) { return figures.slopes.arena; });
  add_slope("process_anonymous", [](const GrowthFigures& figures) { return figures.slopes.anonymous; });
  add_slope("process_resident", [](const GrowthFigures& figures) { return figures.slopes.resident; });
  add_slope("process_proportional", [](const GrowthFigures& figures) { return figures.slopes.proportional; });
  add_slope("device", [](const GrowthFigures& figures) { return figures.slopes.device; });
}

void AddCapacityColumns(std::vector<CsvColumn>* columns) {
  const auto add = [&](const std::string& name, std::function<std::string(const CapacityFigures&)> value) {
    columns->push_back({name, [value = std::move(value)](const CsvRow& row) {
                          return row.capacity == nullptr ? "" : value(*row.capacity);
                        }});
  };
  add("capacity_sessions", [](const CapacityFigures& figures) { return OrEmpty(figures.sessions); });
  add("capacity_refused_with", [](const CapacityFigures& figures) { return OrEmpty(figures.refused_with); });
  add("capacity_arena_bytes", [](const CapacityFigures& figures) { return OrEmpty(figures.arena_bytes); });
  add("capacity_with_token", [](const CapacityFigures& figures) { return OrEmpty(figures.with_token); });
  add("capacity_refused_again",
      [](const CapacityFigures& figures) { return OrEmpty(figures.refused_again); });
  add("capacity_accepted_after_delete",
      [](const CapacityFigures& figures) { return OrEmpty(figures.accepted_after_delete); });
  add("create_p99_ms",
      [](const CapacityFigures& figures) { return PartOf(figures.create_ms, &Distribution::p99); });
  add("first_token_p99_ms",
      [](const CapacityFigures& figures) { return PartOf(figures.first_token_ms, &Distribution::p99); });
  add("step_ms", [](const CapacityFigures& figures) { return OrEmpty(figures.step_ms); });
}

std::vector<CsvColumn> Columns() {
  std::vector<CsvColumn> columns = {
      {"started", [](const CsvRow& row) { return row.report->started; }},
      {"server", [](const CsvRow& row) { return row.report->server_address; }},
      {"server_version", [](const CsvRow& row) { return row.report->server_version; }},
      {"seed", [](const CsvRow& row) { return fmt::format("{}", row.report->seed); }},
      {"model", [](const CsvRow& row) { return row.model; }},
      {"mixer", [](const CsvRow& row) { return row.mixer; }},
      {"phase", [](const CsvRow& row) { return row.phase; }},
  };
  TrafficColumns traffic(&columns);
  traffic.Field("arrivals", &TrafficFigures::arrivals);
  traffic.Field("concurrency", &TrafficFigures::concurrency);
  traffic.Field("rate_per_second", &TrafficFigures::rate);
  traffic.Field("turns", &TrafficFigures::turns);
  traffic.Field("seconds", &TrafficFigures::seconds);
  traffic.Field("drain_seconds", &TrafficFigures::drain_seconds);
  traffic.Field("requests_scheduled", &TrafficFigures::scheduled);
  traffic.Field("requests_completed", &TrafficFigures::completed);
  traffic.Field("requests_empty", &TrafficFigures::empty);
  traffic.Field("requests_failed", &TrafficFigures::failed);
  traffic.Field("requests_cancelled", &TrafficFigures::cancelled);
  traffic.Value("errors", [](const TrafficFigures& figures) { return ErrorsText(figures.errors); });
  traffic.Field("tokens_prompt", &TrafficFigures::prompt_tokens);
  traffic.Field("tokens_generated", &TrafficFigures::generated_tokens);
  traffic.Field("tokens_in_time", &TrafficFigures::tokens_in_time);
  traffic.Field("tokens_per_second", &TrafficFigures::tokens_per_second);
  traffic.Field("requests_per_second", &TrafficFigures::requests_per_second);
  traffic.Field("goodput_per_second", &TrafficFigures::goodput_per_second);
  traffic.Field("server_prompt_tokens", &TrafficFigures::server_prompt_tokens);
  traffic.Field("server_generated_tokens", &TrafficFigures::server_generated_tokens);
  traffic.Spread("ttft", "ms", &TrafficFigures::ttft_ms);
  traffic.Spread("first_text", "ms", &TrafficFigures::first_text_ms);
  traffic.Spread("itl", "ms", &TrafficFigures::itl_ms);
  traffic.Spread("tpot", "ms", &TrafficFigures::tpot_ms);
  traffic.Spread("e2e", "ms", &TrafficFigures::e2e_ms);
  traffic.Spread("send_lag", "ms", &TrafficFigures::send_lag_ms);
  traffic.Spread("stream_rate", "tokens_per_second", &TrafficFigures::stream_tokens_per_second);
  AddGrowthColumns(&columns);
  AddCapacityColumns(&columns);
  return columns;
}

std::vector<CsvRow> Rows(const Report& report) {
  std::vector<CsvRow> rows;
  const auto mixer_of = [&](const std::string& name) {
    for (const ModelReport& model : report.models)
      if (model.name == name) return model.mixer;
    return std::string();
  };
  for (const ModelReport& model : report.models) {
    const auto row = [&](const std::string& phase) {
      return CsvRow{.report = &report, .model = model.name, .mixer = model.mixer, .phase = phase};
    };
    for (const TrafficFigures& figures : model.traffic)
      rows.push_back(row("traffic")), rows.back().traffic = &figures;
    if (model.growth) rows.push_back(row("growth")), rows.back().growth = &*model.growth;
    if (model.capacity) rows.push_back(row("capacity")), rows.back().capacity = &*model.capacity;
  }
  for (const MixedFigures& mixed : report.mixed) {
    for (const auto& [name, figures] : mixed.models)
      rows.push_back({&report, name, mixer_of(name), "mixed", &figures});
    rows.push_back({&report, "all", "", "mixed", &mixed.all});
  }
  return rows;
}

}  // namespace

std::string ReportCsv(const Report& report) {
  const std::vector<CsvColumn> columns = Columns();
  std::string text;
  const auto line = [&](const std::function<std::string(const CsvColumn&)>& cell) {
    for (size_t i = 0; i < columns.size(); ++i) text += (i == 0 ? "" : ",") + Quote(cell(columns[i]));
    text += "\r\n";
  };
  line([](const CsvColumn& column) { return column.name; });
  for (const CsvRow& row : Rows(report)) line([&](const CsvColumn& column) { return column.value(row); });
  return text;
}

}  // namespace weir
