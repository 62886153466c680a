// What /metrics looks like: names, types and labels, and that the table in server/metrics/README.md says the
// same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "nlohmann/json.hpp"
#include "tests/support/http_client.h"
#include "tests/support/metrics_text.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using testing::Generate;
using testing::HttpGet;
using testing::ServerFixture;

// A fixed and a paged model, with a turn, a snapshot and a rollback behind them.
class MetricsFormat : public ::testing::Test {
 protected:
  static ServerFixture& Fixture() { return *fixture_; }
  static void SetUpTestSuite() {
    testing::FixtureOptions options;
    options.server.metrics_listen = "127.0.0.1:0";
    std::vector<testing::ServedModel> models;
    models.push_back(testing::MakeServedFake("fixed"));
    models.push_back(
        testing::MakeServedFake("paged", {.context_limit = 1024, .paged = true}, {.kv_blocks = 64}));
    fixture_ = std::make_unique<ServerFixture>(std::move(models), options);
    v1::GenerateRequest request = testing::GreedyRequest({1, 2, 3}, 40);
    for (const char* model : {"models/fixed", "models/paged"}) {
      request.set_model(model);
      EXPECT_TRUE(Generate(Fixture().generation(), request).status.ok());
    }
    v1::CreateSessionRequest create;
    create.mutable_session()->set_model("models/fixed");
    create.set_session_id("s");
    v1::Session session;
    grpc::ClientContext first, second, third;
    EXPECT_TRUE(Fixture().sessions().CreateSession(&first, create, &session).ok());
    request.set_model("");
    request.set_session("sessions/s");
    EXPECT_TRUE(Generate(Fixture().generation(), request).status.ok());
    v1::CreateSnapshotRequest snap;
    snap.set_parent("sessions/s");
    snap.set_snapshot_id("x");
    v1::Snapshot snapshot;
    EXPECT_TRUE(Fixture().sessions().CreateSnapshot(&second, snap, &snapshot).ok());
    v1::RollbackSessionRequest back;
    back.set_name("sessions/s");
    back.set_snapshot("sessions/s/snapshots/x");
    EXPECT_TRUE(Fixture().sessions().RollbackSession(&third, back, &session).ok());
  }
  static void TearDownTestSuite() { fixture_.reset(); }
  static std::string Text() { return HttpGet(Fixture().server().metrics_port(), "/metrics").body; }

  static inline std::unique_ptr<ServerFixture> fixture_;
};

// The name of a sample and of its labels.
std::pair<std::string, std::set<std::string>> NamesOf(const std::string& sample) {
  std::pair<std::string, std::set<std::string>> names;
  names.first = sample.substr(0, sample.find('{'));
  static const std::regex kLabel("[{,]([^=]+)=\"[^\"]*\"");
  for (auto it = std::sregex_iterator(sample.begin(), sample.end(), kLabel); it != std::sregex_iterator();
       ++it)
    names.second.insert((*it)[1]);
  return names;
}

TEST_F(MetricsFormat, OBS_01_OBS_02_NamesFollowTheRules) {
  const testing::HttpAnswer answer = HttpGet(Fixture().server().metrics_port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto families = testing::ParseMetrics(answer.body);
  EXPECT_GT(families.size(), 35u);
  EXPECT_EQ(families.count(""), 0u) << "samples of no family";
  // As promtool checks, and the prefix.
  const std::regex name_rule("(weir|process)_[a-z][a-z0-9_]*");
  const std::set<std::string> allowed = {"model", "finish_reason", "reason", "state", "tier",
                                         "le",    "version",       "device"};
  for (const auto& [name, family] : families) {
    EXPECT_TRUE(std::regex_match(name, name_rule)) << name;
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    EXPECT_FALSE(family.help.empty()) << name;
    EXPECT_TRUE(family.help.ends_with(".")) << name;
    EXPECT_FALSE(family.samples.empty()) << name;
    for (const char* unit :
         {"milliseconds", "_ms", "kilobytes", "megabytes", "_percent", "_count", "_info_total"})
      EXPECT_EQ(name.find(unit), std::string::npos) << name;
    if (family.help.find("tes of ") != std::string::npos && family.type == "gauge")
      EXPECT_NE(name.find("_bytes"), std::string::npos) << name;
    for (const auto& [sample, value] : family.samples) {
      EXPECT_TRUE(std::isfinite(value) && value >= 0) << sample;
      for (const std::string& label : NamesOf(sample).second) EXPECT_EQ(allowed.count(label), 1u) << sample;
    }
  }
}

TEST_F(MetricsFormat, HistogramsAreCumulativeAndHaveThePublishedBounds) {
  const auto families = testing::ParseMetrics(Text());
  // gen_ai.server.* of OpenTelemetry's semantic conventions.
  const std::map<std::string, std::vector<double>> published = {
      {"weir_time_to_first_token_seconds",
       {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}},
      {"weir_time_per_output_token_seconds",
       {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}},
      {"weir_inter_token_latency_seconds",
       {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}},
      {"weir_request_duration_seconds",
       {0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}}};
  int histograms = 0;
  for (const auto& [name, family] : families) {
    if (family.type != "histogram") continue;
    ++histograms;
    std::map<std::string, std::map<double, double>> buckets;  // by the other labels
    for (const auto& [sample, value] : family.samples) {
      std::smatch le;
      if (!std::regex_search(sample, le, std::regex("le=\"([^\"]+)\""))) continue;
      buckets[std::regex_replace(sample, std::regex(",?le=\"[^\"]+\""), "")][std::stod(le[1])] = value;
    }
    for (const auto& [labels, by_bound] : buckets) {
      double below = 0;
      std::set<double> bounds;
      for (const auto& [bound, count] : by_bound) {
        EXPECT_GE(count, below) << name;
        below = count;
        bounds.insert(bound);
      }
      EXPECT_TRUE(std::isinf(by_bound.rbegin()->first));
      std::string count = labels.ends_with("{}") ? labels.substr(0, labels.size() - 2) : labels;
      count.replace(count.find("_bucket"), 7, "_count");
      ASSERT_EQ(family.samples.count(count), 1u) << count;
      EXPECT_EQ(family.samples.at(count), below) << count;
      if (published.count(name) > 0)
        for (const double bound : published.at(name))
          EXPECT_EQ(bounds.count(bound), 1u) << name << " " << bound;
      if (published.count(name) > 0) EXPECT_LT(*bounds.begin(), 0.01) << name;
    }
  }
  EXPECT_EQ(histograms, 9);
}

TEST_F(MetricsFormat, PromtoolHasNothingToSay) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const testing::TempDir dir;
  const std::string file = dir.Write("metrics", Text()), said = dir.File("said");
  const int status = std::system(("promtool check metrics <" + file + " >" + said + " 2>&1").c_str());
  std::stringstream text;
  text << std::ifstream(said).rdbuf();
  EXPECT_EQ(WEXITSTATUS(status), 0) << text.str();
}

// | `name` | type | labels | what |
TEST_F(MetricsFormat, TheTableInTheReadmeSaysWhatIsServed) {
  std::set<std::string> in_table, served;
  std::ifstream readme(WEIR_SOURCE_DIR "/server/metrics/README.md");
  const std::regex row("\\| `([a-z_]+)` \\| ([a-z]+) \\| (.*) \\| (.*) \\|");
  for (std::string line; std::getline(readme, line);) {
    std::smatch cells;
    if (std::regex_match(line, cells, row)) in_table.insert(line);
  }
  for (const auto& [name, family] : testing::ParseMetrics(Text())) {
    std::set<std::string> labels;
    for (const auto& [sample, value] : family.samples)
      for (const std::string& label : NamesOf(sample).second)
        if (label != "le") labels.insert(label);
    std::string names;
    for (const std::string& label : labels) names += (names.empty() ? "" : ", ") + label;
    served.insert("| `" + name + "` | " + family.type + " | " + names + " | " + family.help + " |");
  }
  EXPECT_EQ(in_table, served);
}

// Every metric that the dashboard asks for is one that is served, with labels that it has.
TEST_F(MetricsFormat, TheDashboardAsksForWhatIsServed) {
  std::ifstream file(WEIR_SOURCE_DIR "/deploy/grafana/weir.json");
  const nlohmann::json dashboard = nlohmann::json::parse(file);
  std::map<std::string, std::set<std::string>> served;  // labels by name
  for (const auto& [name, family] : testing::ParseMetrics(Text()))
    for (const auto& [sample, value] : family.samples) {
      const auto [sample_name, labels] = NamesOf(sample);
      served[sample_name].insert(labels.begin(), labels.end());
    }
  std::vector<std::string> queries;
  const std::function<void(const nlohmann::json&)> walk = [&](const nlohmann::json& node) {
    if (node.is_object())
      for (const auto& [key, value] : node.items())
        if ((key == "expr" || key == "query") && value.is_string()) queries.push_back(value);
    if (node.is_structured())
      for (const nlohmann::json& child : node) walk(child);
  };
  walk(dashboard);
  EXPECT_GT(queries.size(), 15u);
  const std::regex name("\\b(weir|process)_[a-z0-9_]+");
  const std::regex selector("((?:weir|process)_[a-z0-9_]+)\\{([^}]*)\\}");
  const std::regex label("([a-z_]+)\\s*(?:=~|!=|!~|=)");
  std::set<std::string> asked;
  for (const std::string& query : queries) {
    for (auto it = std::sregex_iterator(query.begin(), query.end(), name); it != std::sregex_iterator();
         ++it) {
      EXPECT_EQ(served.count(it->str()), 1u) << it->str() << " in " << query;
      asked.insert(it->str());
    }
    for (auto it = std::sregex_iterator(query.begin(), query.end(), selector); it != std::sregex_iterator();
         ++it) {
      const std::string labels = (*it)[2];
      for (auto l = std::sregex_iterator(labels.begin(), labels.end(), label); l != std::sregex_iterator();
           ++l) {
        const std::string wanted = (*l)[1];
        if (wanted != "job" && wanted != "instance")
          EXPECT_EQ(served[(*it)[1]].count(wanted), 1u) << wanted << " in " << query;
      }
    }
  }
  for (const char* needed :
       {"weir_sessions", "weir_state_slots", "weir_session_state_bytes",
        "weir_time_to_first_token_seconds_bucket", "weir_inter_token_latency_seconds_bucket",
        "weir_generated_tokens_total", "weir_requests_waiting", "weir_admission_rejected_total"})
    EXPECT_EQ(asked.count(needed), 1u) << needed;
}

TEST_F(MetricsFormat, LiveJsonAndThePage) {
  const int port = Fixture().server().metrics_port();
  const testing::HttpAnswer answer = HttpGet(port, "/live.json");
  EXPECT_EQ(answer.headers.at("content-type"), "application/json");
  const nlohmann::json live = nlohmann::json::parse(answer.body);
  EXPECT_EQ(live["version"], WEIR_VERSION);
  EXPECT_GT(live["uptime_seconds"].get<double>(), 0);
  EXPECT_GT(live["process_resident_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_EQ(live["draining"], false);
  ASSERT_EQ(live["models"].size(), 2u);
  const nlohmann::json& fixed = live["models"][0];
  EXPECT_EQ(fixed["name"], "fixed");
  EXPECT_EQ(fixed["mixer"], "fake");
  EXPECT_EQ(fixed["state_kind"], "fixed");
  EXPECT_EQ(fixed["block_bytes"], 0);
  EXPECT_EQ(fixed["slots_total"], 64);
  EXPECT_EQ(fixed["slots_free"], 63);
  EXPECT_EQ(fixed["sessions"], 1);
  EXPECT_EQ(fixed["generated_tokens"], 80);
  EXPECT_EQ(fixed["positions"]["sum"], 43);
  EXPECT_EQ(fixed["positions"]["max"], 43);
  EXPECT_GT(fixed["step_seconds_sum"].get<double>(), 0);
  EXPECT_TRUE(fixed.contains("heads"));
  const nlohmann::json& paged = live["models"][1];
  EXPECT_EQ(paged["state_kind"], "paged");
  EXPECT_GT(paged["block_tokens"].get<int>(), 0);
  EXPECT_EQ(paged["kv_blocks_total"], 64);

  const testing::HttpAnswer page = HttpGet(port, "/");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  const std::string policy = page.headers.at("content-security-policy");
  for (const char* rule : {"default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"})
    EXPECT_NE(policy.find(rule), std::string::npos) << policy;
  EXPECT_NE(page.body.find("live.json"), std::string::npos);
  EXPECT_NE(page.body.find("href=\"figures\""), std::string::npos);
  const testing::HttpAnswer figures = HttpGet(port, "/figures");
  EXPECT_EQ(figures.status, 200);
  EXPECT_EQ(figures.headers.at("content-security-policy"), policy);
  EXPECT_EQ(figures.body.find("src=\"../"), std::string::npos) << "a figure is not in the page";
  EXPECT_NE(figures.body.find("src=\"data:image/svg+xml,%3Csvg xmlns=%22http"), std::string::npos);
  EXPECT_EQ(HttpGet(port, "/metrics/").status, 404);
  EXPECT_EQ(HttpGet(port, "/livez").status, 200);
}

}  // namespace
}  // namespace weir
