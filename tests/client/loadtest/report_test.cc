// The report as JSON, CSV and text, and what is drawn meanwhile.
#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "client/loadtest/capacity_report.h"
#include "client/loadtest/live_table.h"
#include "client/loadtest/report_csv.h"
#include "client/loadtest/report_json.h"
#include "client/loadtest/report_table.h"
#include "client/loadtest/text_table.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/loadtest/terminal_screen.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrafficFigures Closed() {
  TrafficFigures figures;
  figures.arrivals = "closed";
  figures.concurrency = 8;
  figures.seconds = 30;
  figures.scheduled = 100;
  figures.completed = 97;
  figures.failed = 3;
  figures.errors = {{"QUEUE_FULL", 3}};
  figures.error_messages = {{"QUEUE_FULL", "10 turns, \"all\" waiting"}};
  figures.generated_tokens = figures.all_generated_tokens = 12'000;
  figures.tokens_per_second = 400;
  figures.ttft_ms = {.count = 97, .mean = 4.5, .p50 = 4, .p90 = 5, .p99 = 6, .p999 = 7, .max = 8};
  figures.timeline = {{.second = 0, .tokens = 380, .running = 8, .ttft_p50_ms = 4.1},
                      {.second = 1, .tokens = 0}};
  figures.server_generated_tokens = 12'000;
  return figures;
}

Report Example() {
  Report report;
  report.started = "2026-11-30T18:00:00Z";
  report.seconds = 123.4;
  report.command = "weir loadtest -m tales-linear";
  report.seed = 7;
  report.server_address = "127.0.0.1:7070";
  report.server_version = "0.1.0";
  report.server_device = "cpu (8 \"fast\" cores)";
  report.limits.ttft_ms = 200;
  ModelReport model;
  model.name = "tales-linear";
  model.mixer = "linear_attention";
  model.fixed_bytes = 640'512;
  model.traffic = {Closed(), Closed()};
  model.traffic[1].arrivals = "poisson";
  model.traffic[1].concurrency.reset();
  model.traffic[1].rate = 12.5;
  report.models = {model};
  return report;
}

// Every path of the schema, as LOADTEST's readers rely on it.
void CollectPaths(const nlohmann::json& json, const std::string& prefix, std::set<std::string>* paths) {
  if (json.is_object())
    for (const auto& [key, value] : json.items()) {
      paths->insert(prefix + key);
      CollectPaths(value, prefix + key + ".", paths);
    }
  if (json.is_array() && !json.empty()) CollectPaths(json.front(), prefix, paths);
}

TEST(ReportJson, HasEveryFieldOfTheSchema) {
  const nlohmann::json json = nlohmann::json::parse(ReportJson(Example()).dump());
  std::set<std::string> paths;
  CollectPaths(json, "", &paths);
  std::vector<std::string> wanted = {"weir_loadtest",
                                     "started",
                                     "seconds",
                                     "command",
                                     "seed",
                                     "server.address",
                                     "server.version",
                                     "server.device",
                                     "server.compute_threads",
                                     "limits.ttft_ms",
                                     "limits.tpot_ms",
                                     "limits.e2e_ms",
                                     "models.name",
                                     "models.mixer",
                                     "models.architecture",
                                     "models.parameters",
                                     "models.weight_dtype",
                                     "models.state.kind",
                                     "models.state.fixed_bytes",
                                     "models.state.block_bytes",
                                     "models.state.block_tokens",
                                     "mixed",
                                     "passed",
                                     "failures"};
  for (const char* field : {"arrivals",
                            "concurrency",
                            "rate",
                            "turns",
                            "seconds",
                            "drain_seconds",
                            "requests.scheduled",
                            "requests.completed",
                            "requests.cancelled",
                            "requests.failed",
                            "requests.empty",
                            "errors",
                            "error_messages",
                            "tokens.prompt",
                            "tokens.generated",
                            "tokens.in_time",
                            "tokens.with_warmup",
                            "server_tokens.prompt",
                            "server_tokens.generated",
                            "tokens_per_second",
                            "requests_per_second",
                            "goodput_per_second",
                            "timeline.second",
                            "timeline.tokens",
                            "timeline.running",
                            "timeline.ttft_p50_ms"})
    wanted.push_back(std::string("models.traffic.") + field);
  for (const char* spread :
       {"ttft_ms", "first_text_ms", "itl_ms", "tpot_ms", "e2e_ms", "send_lag_ms", "stream_tokens_per_second"})
    for (const char* part : {"count", "mean", "p50", "p90", "p99", "p999", "max"})
      wanted.push_back(std::string("models.traffic.") + spread + "." + part);
  for (const std::string& path : wanted) EXPECT_EQ(paths.count(path), 1u) << path;

  EXPECT_EQ(json["weir_loadtest"], 1);
  EXPECT_EQ(json["limits"]["ttft_ms"], 200.0);
  EXPECT_TRUE(json["limits"]["e2e_ms"].is_null());
  EXPECT_TRUE(json["mixed"].is_null());
  EXPECT_EQ(json["passed"], true);
  const nlohmann::json& closed = json["models"][0]["traffic"][0];
  EXPECT_EQ(closed["requests"]["failed"], 3);
  EXPECT_EQ(closed["errors"], nlohmann::json({{"QUEUE_FULL", 3}}));
  EXPECT_TRUE(closed["rate"].is_null());
  EXPECT_EQ(closed["ttft_ms"]["p999"], 7.0);
  EXPECT_EQ(closed["tokens_per_second"], 400.0);
  EXPECT_EQ(closed["timeline"][0]["ttft_p50_ms"], 4.1);
  EXPECT_TRUE(closed["timeline"][1]["ttft_p50_ms"].is_null());
  EXPECT_EQ(json["models"][0]["traffic"][1]["rate"], 12.5);
  EXPECT_TRUE(json["models"][0]["traffic"][1]["concurrency"].is_null());
}

// A zero would be a figure, and a good one.
TEST(ReportJson, WhatWasNotMeasuredIsNull) {
  Report report = Example();
  report.models[0].traffic = {TrafficFigures()};
  report.models[0].growth.emplace().points.emplace_back();
  report.models[0].capacity.emplace().failure = "interrupted";
  const nlohmann::json model = nlohmann::json::parse(ReportJson(report).dump())["models"][0];
  const nlohmann::json& traffic = model["traffic"][0];
  for (const char* rate : {"tokens_per_second", "requests_per_second", "goodput_per_second"})
    EXPECT_TRUE(traffic[rate].is_null()) << rate;
  EXPECT_TRUE(model["growth"]["points"][0]["itl_ms"].is_null());
  std::vector<nlohmann::json> spreads;
  for (const char* spread :
       {"ttft_ms", "first_text_ms", "itl_ms", "tpot_ms", "e2e_ms", "send_lag_ms", "stream_tokens_per_second"})
    spreads.push_back(traffic[spread]);
  for (const char* spread : {"create_ms", "first_token_ms"}) spreads.push_back(model["capacity"][spread]);
  for (const nlohmann::json& spread : spreads)
    EXPECT_EQ(spread.dump(),
              R"({"count":0,"max":null,"mean":null,"p50":null,"p90":null,"p99":null,"p999":null})");
  for (const auto& [key, value] : model["capacity"].items())
    if (!value.is_object()) EXPECT_TRUE(value.is_null()) << key;
}

TEST(ReportTable, WhatWasNotMeasuredIsADash) {
  Report report = Example();
  report.models[0].traffic = {TrafficFigures()};
  report.models[0].traffic[0].concurrency = 8;
  std::istringstream lines(ReportTable(report));
  std::string row;
  while (std::getline(lines, row) && row.rfind("tales-linear", 0) != 0) continue;
  EXPECT_EQ(TextTable({{row}}),
            "tales-linear  8 at once     0    0      -       -      -         -    -        -    -"
            "         -        -    -\n");
  CapacityFigures nothing;
  nothing.failure = "interrupted";
  EXPECT_EQ(CapacityText("m", nothing),
            "m: sessions open at once: not tried\n"
            "  created: not tried; the next one: not tried\n"
            "  a token in each: not tried\n"
            "  one more: not tried; after one was deleted: not tried\n"
            "  interrupted\n");
}

TEST(ReportJson, AMixedRunHasItsModelsWithin) {
  Report report = Example();
  report.models[0].traffic.clear();
  report.mixed = {{.all = Closed(), .models = {{"a", Closed()}, {"b", Closed()}}}};
  report.failures = {"something"};
  const nlohmann::json json = nlohmann::json::parse(ReportJson(report).dump());
  EXPECT_EQ(json["models"][0]["traffic"], nlohmann::json::array());
  ASSERT_EQ(json["mixed"].size(), 1u);
  EXPECT_EQ(json["mixed"][0]["requests"]["completed"], 97);
  EXPECT_EQ(json["mixed"][0]["models"]["b"]["tokens"]["generated"], 12'000);
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["failures"], nlohmann::json::array({"something"}));
}

// RFC 4180, read back by rules of its own.
std::vector<std::vector<std::string>> ParseCsv(const std::string& text) {
  std::vector<std::vector<std::string>> rows = {{""}};
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string& cell = rows.back().back();
    if (text[i] == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"')
      cell += text[++i];
    else if (text[i] == '"')
      quoted = !quoted;
    else if (text[i] == ',' && !quoted)
      rows.back().emplace_back();
    else if (text[i] == '\r' && !quoted && i + 1 < text.size() && text[i + 1] == '\n')
      ++i, rows.push_back({""});
    else
      cell += text[i];
  }
  rows.pop_back();
  return rows;
}

TEST(ReportCsv, HasAsManyCellsAsColumnsInEveryLine) {
  Report report = Example();
  report.server_address = "a,\"b\"";
  report.models[0].growth.emplace();
  report.models[0].growth->slopes.arena = Slope{.count = 40, .bytes_per_token = 2.5, .low = 2, .high = 3};
  report.models[0].growth->points.emplace_back().position = 1000;
  report.models[0].growth->points[0].itl = TimePerToken{{.count = 9, .mean = 2.5, .p90 = 3}, 2};
  report.models[0].growth->session_slope = Slope{.count = 3, .bytes_per_token = 256, .low = 256, .high = 256};
  report.models[0].growth->other_clients = "3 tokens of b";
  report.models[0].capacity.emplace();
  report.models[0].capacity->sessions = 256;
  report.mixed = {{.all = Closed(), .models = {{"tales-linear", Closed()}}}};
  const auto rows = ParseCsv(ReportCsv(report));
  ASSERT_EQ(rows.size(), 7u);  // names, two phases, growth, capacity, a mixed one: its model and all
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows[0].size());
  EXPECT_EQ(std::set<std::string>(rows[0].begin(), rows[0].end()).size(), rows[0].size()) << "a name twice";
  const auto cell = [&](size_t row, const std::string& column) {
    const auto at = std::find(rows[0].begin(), rows[0].end(), column);
    return at == rows[0].end() ? "no such column" : rows[row][static_cast<size_t>(at - rows[0].begin())];
  };
  EXPECT_EQ(cell(1, "server"), "a,\"b\"");
  EXPECT_EQ(cell(1, "model"), "tales-linear");
  EXPECT_EQ(cell(1, "mixer"), "linear_attention");
  EXPECT_EQ(cell(1, "phase"), "traffic");
  EXPECT_EQ(cell(1, "concurrency"), "8");
  EXPECT_EQ(cell(1, "rate_per_second"), "");
  EXPECT_EQ(cell(2, "rate_per_second"), "12.5");
  EXPECT_EQ(cell(1, "errors"), "QUEUE_FULL=3");
  EXPECT_EQ(cell(1, "ttft_p999_ms"), "7");
  EXPECT_EQ(cell(1, "itl_p50_ms"), "");  // none, not zero
  EXPECT_EQ(cell(3, "phase"), "growth");
  EXPECT_EQ(cell(3, "growth_position"), "1000");
  EXPECT_EQ(cell(3, "arena_bytes_per_token_high"), "3");
  EXPECT_EQ(cell(3, "process_resident_bytes_per_token"), "");
  EXPECT_EQ(cell(3, "session_bytes_per_token"), "256");
  EXPECT_EQ(cell(3, "session_bytes_per_token_low"), "") << "three readings give no interval";
  EXPECT_EQ(cell(3, "growth_itl_mean_ms"), "2.5");
  EXPECT_EQ(cell(3, "growth_itl_p10_ms"), "2");
  EXPECT_EQ(cell(3, "growth_itl_p90_ms"), "3");
  EXPECT_EQ(cell(3, "growth_outcome"), "undecided");
  EXPECT_EQ(cell(3, "growth_other_clients"), "3 tokens of b");
  EXPECT_EQ(cell(3, "requests_completed"), "");
  EXPECT_EQ(cell(4, "phase"), "capacity");
  EXPECT_EQ(cell(4, "capacity_sessions"), "256");
  EXPECT_EQ(cell(4, "growth_sessions"), "");
  // What was not tried is empty.
  for (const char* column :
       {"capacity_refused_with", "capacity_arena_bytes", "capacity_with_token", "capacity_refused_again",
        "capacity_accepted_after_delete", "create_p99_ms", "first_token_p99_ms", "step_ms"})
    EXPECT_EQ(cell(4, column), "") << column;
  EXPECT_EQ(cell(1, "tokens_per_second"), "400");
  EXPECT_EQ(cell(1, "requests_per_second"), "");
  EXPECT_EQ(cell(5, "phase"), "mixed");
  EXPECT_EQ(cell(6, "model"), "all");
}

TEST(ReportTable, SaysWhatWasMeasuredAndWhatWentWrong) {
  Report report = Example();
  const std::string table = ReportTable(report);
  EXPECT_THAT(table, HasSubstr("127.0.0.1:7070"));
  EXPECT_THAT(table, HasSubstr("8 at once"));
  EXPECT_THAT(table, HasSubstr("12.5/s poisson"));
  EXPECT_THAT(table, HasSubstr("3 QUEUE_FULL: 10 turns, \"all\" waiting"));
  EXPECT_THAT(table, Not(HasSubstr("the server counted")));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 130u) << line;
  report.models[0].traffic[0].server_generated_tokens = 12'001;
  report.models[0].traffic[0].send_lag_ms.p99 = 12;
  report.models[0].traffic[0].empty = 2;
  EXPECT_THAT(ReportTable(report), HasSubstr("the server counted 12001 generated tokens, 12000 arrived"));
  EXPECT_THAT(ReportTable(report), HasSubstr("sent late by the load test itself"));
  EXPECT_THAT(ReportTable(report), HasSubstr("2 empty"));
}

TEST(TextTable, AlignsAndRounds) {
  EXPECT_EQ(TextTable({{"A", "BB", "C"}, {"long", "1", ""}}), "A     BB  C\nlong   1\n");
  for (const auto& [value, text] : std::vector<std::pair<double, std::string>>{{-1, "-"},
                                                                               {0, "0"},
                                                                               {0.01234, "0.0123"},
                                                                               {0.9996, "1.00"},
                                                                               {4.5, "4.50"},
                                                                               {9.996, "10.0"},
                                                                               {99.94, "99.9"},
                                                                               {99.96, "100"},
                                                                               {1234.5, "1234"}})
    EXPECT_EQ(ShortNumber(value), text) << value;
}

// Of a row, the cells that are a number; what is marked as cut is none.
std::vector<std::string> NumbersOf(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> numbers;
  for (std::string word; words >> word;)
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.back() != '.')
      numbers.push_back(word);
  return numbers;
}

// The user's ^C stands where the cursor is when the next drawing comes.
TEST(LiveTable, IsDrawnOverItselfOnATerminalOfAnyWidthAndLeavesNothing) {
  const std::vector<LiveRow> rows = {{.what = "tales-linear",
                                      .progress = "12s of 30s, draining",
                                      .running = 8,
                                      .completed = 4711,
                                      .failed = 3,
                                      .tokens = 1234567,
                                      .tokens_per_second = 1500,
                                      .ttft_ms = 63.5,
                                      .itl_ms = 1.87}};
  const std::vector<std::string> cells = {"8", "4711", "3", "1234567", "1500", "63.5", "1.87"};
  for (int columns = 20; columns <= 200; ++columns) {
    LiveTable table(/*terminal=*/true);
    testing::TerminalScreen screen(columns, 24);
    screen.Feed("$ weir loadtest\n");
    for (const char* phase : {"tales-linear, 8 at once", "tales-linear, 64 at once"})
      for (int drawn = 0; drawn < 5; ++drawn) {
        screen.Feed(table.Draw(phase, rows, drawn == 4, absl::UnixEpoch(), {.columns = columns, .rows = 24}));
        if (drawn < 4) screen.Feed("^C");
      }
    EXPECT_EQ(screen.wrapped(), 0) << columns;
    EXPECT_EQ(screen.unknown(), "") << columns;
    const std::vector<std::string> lines = screen.Lines();
    ASSERT_EQ(lines.size(), 7u) << columns;  // the prompt, and three lines a phase
    EXPECT_EQ(lines[0], "$ weir loadtest");
    EXPECT_EQ(lines[1].substr(0, 12), "tales-linear");
    EXPECT_EQ(lines[4], columns > 24 ? "tales-linear, 64 at once" : lines[4].substr(0, columns - 3) + "..");
    // A number is whole or not there: half of one would be another.
    for (const size_t line : {3u, 6u})
      for (const std::string& number : NumbersOf(lines[line]))
        EXPECT_NE(std::find(cells.begin(), cells.end(), number), cells.end())
            << columns << ": " << lines[line];
    if (columns > 60) EXPECT_THAT(lines[2], HasSubstr("TOK/S")) << columns;
    if (columns >= 80) EXPECT_THAT(lines[2], HasSubstr("ITL ms")) << columns;
    if (columns >= 120) EXPECT_EQ(NumbersOf(lines[3]), cells) << columns;
  }
}

// The little that a narrow terminal has room for is how far it is.
TEST(LiveTable, NamesAreCutBeforeProgressIs) {
  const std::vector<LiveRow> rows = {{.what = "tales-linear, growth of 16 sessions",
                                      .progress = "position 12,345 of 1,000,000",
                                      .running = 16}};
  for (int columns = 40; columns <= 200; ++columns)
    EXPECT_THAT(
        LiveTable(true).Draw("tales-linear, growth", rows, false, absl::UnixEpoch(), {.columns = columns}),
        HasSubstr("position 12,345 of 1,000,000"))
        << columns;
  EXPECT_THAT(LiveTable(true).Draw("tales-linear, growth", rows, false, absl::UnixEpoch(), {.columns = 30}),
              HasSubstr("position 12,345 o..\n"));
}

TEST(LiveTable, OfManyModelsIsNoHigherThanTheTerminal) {
  std::vector<LiveRow> rows(40);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].what = fmt::format("model-{}", i);
  LiveTable table(/*terminal=*/true);
  testing::TerminalScreen screen(80, 24);
  for (int drawn = 0; drawn < 5; ++drawn)
    screen.Feed(table.Draw("mixed", rows, drawn == 4, absl::UnixEpoch(), {.columns = 80, .rows = 24}));
  const std::vector<std::string> lines = screen.Lines();
  ASSERT_EQ(lines.size(), 23u);
  EXPECT_EQ(lines.front(), "mixed");
  EXPECT_EQ(lines[2].substr(0, 7), "model-0");
  EXPECT_EQ(lines.back(), "20 more");
}

TEST(LiveTable, NothingThatAServerCallsItsModelMovesTheCursor) {
  const std::vector<LiveRow> rows = {{.what = "a\x1b[2J\nb", .progress = "1s"}};
  for (const bool terminal : {true, false})
    EXPECT_THAT(LiveTable(terminal).Draw("a\x1b[2J\nb, 8 at once", rows, false, absl::UnixEpoch(), {}),
                Not(HasSubstr("\x1b")));
}

TEST(LiveTable, IsALineNowAndThenElsewhere) {
  LiveTable table(/*terminal=*/false);
  const std::vector<LiveRow> rows = {{.what = "a", .progress = "1s of 30s", .running = 8, .tokens = 55}};
  absl::Time now = absl::UnixEpoch();
  int drawn = 0;
  for (int i = 0; i < 40; ++i, now += absl::Milliseconds(500)) {
    const std::string text = table.Draw("a, 8 at once", rows, false, now, {});
    drawn += text.empty() ? 0 : 1;
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  }
  EXPECT_EQ(drawn, 4);  // at 0, 5, 10 and 15 s
  EXPECT_EQ(table.Draw("a, 8 at once", rows, true, now, {}),
            "a, 8 at once: a: 1s of 30s; 8 running, 0 completed, 0 failed, 55 tokens, - tok/s, TTFT - ms, "
            "ITL - ms; done\n");
  EXPECT_NE(table.Draw("b, 8 at once", rows, false, now, {}), "");  // another phase
  // Growth has no columns of traffic, and its model's name once.
  const std::vector<LiveRow> growth = {{.what = {}, .progress = {}, .line = "4 sessions at position 8"}};
  EXPECT_EQ(table.Draw("a, growth", growth, true, now, {}), "a, growth: 4 sessions at position 8; done\n");
  LiveTable screen(/*terminal=*/true);
  EXPECT_EQ(screen.Draw("a, growth", growth, false, now, {}), "a, growth: 4 sessions at position 8\n");
  EXPECT_EQ(screen.Draw("a, growth", growth, true, now, {}),
            "\r\x1b[1A\x1b[Ja, growth: 4 sessions at position 8\n");
}

}  // namespace
}  // namespace weir
