// What deploy/compose.yaml and deploy/kubernetes say of the server is what the server does. Their form is
// checked against schemas by deploy/kubernetes/validate.py, by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "tests/e2e/process.h"
#include "tests/support/http_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const fs::path kDeploy = WEIR_SOURCE_DIR "/deploy";
const fs::path kBase = kDeploy / "kubernetes/base";

std::string TextOf(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

// The first group of each match.
std::vector<std::string> FindAll(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it)
    found.push_back((*it)[1].str());
  return found;
}

std::string FindOne(const std::string& text, const std::string& pattern) {
  const std::vector<std::string> found = FindAll(text, pattern);
  EXPECT_THAT(found, SizeIs(1)) << pattern;
  return found.empty() ? "" : found[0];
}

absl::Duration TimeIn(const std::string& text, const std::string& pattern) {
  absl::Duration time;
  const std::string found = FindOne(text, pattern);
  EXPECT_TRUE(absl::ParseDuration(found, &time)) << found;
  return time;
}

// A server on free ports of loopback, for addresses of others in the manifests.
struct StartedServer {
  explicit StartedServer(const std::vector<std::string>& command) : process(command) {
    const std::string log = process.ReadUntil("ready:");
    EXPECT_THAT(log, HasSubstr("ready:"));
    const std::regex address("(listens|metrics) on (127\\.0\\.0\\.1:([0-9]+))");
    for (auto it = std::sregex_iterator(log.begin(), log.end(), address); it != std::sregex_iterator(); ++it)
      ((*it)[1] == "metrics" ? metrics_port : port) = std::stoi((*it)[3]);
  }
  Process process;
  int port = 0, metrics_port = 0;
};

std::string Loopback(std::string text) {
  EXPECT_GE(absl::StrReplaceAll({{"0.0.0.0:7070", "127.0.0.1:0"}, {"0.0.0.0:9090", "127.0.0.1:0"}}, &text),
            2);
  return text;
}

TEST(Manifests, TheServerTakesTheConfigurationAndHasWhatProbesAndTheAutoscalerAskFor) {
  const TempDir dir, model;
  WriteTinyModel(model.path(), {});
  const std::string config = dir.Write("weir.conf", Loopback(TextOf(kBase / "weir.conf")));
  StartedServer server({WEIR_SERVER_BINARY, "--config", config, "--model", "tiny=" + model.path()});
  ASSERT_GT(server.port, 0);
  ASSERT_GT(server.metrics_port, 0);

  const std::string pods = TextOf(kBase / "statefulset.yaml");
  const auto client = WeirClient::Connect("127.0.0.1:" + std::to_string(server.port));
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<std::string> services = FindAll(pods, "grpc: \\{port: 7070, service: ([A-Za-z0-9.]+)\\}");
  EXPECT_THAT(services, SizeIs(2)) << "startup and readiness";
  for (const std::string& service : services) {
    const absl::StatusOr<Health> health = client->CheckHealth(service);
    ASSERT_TRUE(health.ok()) << service << ": " << health.status();
    EXPECT_EQ(*health, Health::kServing) << service;
  }
  EXPECT_EQ(HttpGet(server.metrics_port, FindOne(pods, "httpGet: \\{path: (/[a-z]+)")).status, 200);

  const std::string metrics =
      HttpGet(server.metrics_port, FindOne(TextOf(kBase / "monitor.yaml"), "path: (/\\w+)")).body;
  std::vector<std::string> names = FindAll(TextOf(kBase / "autoscaler.yaml"), "name: (weir_[a-z_]+)");
  EXPECT_THAT(names, SizeIs(2));
  const std::string packages = TextOf(kDeploy / "packages.sh");  // whose names begin so, too
  for (const std::string& name : FindAll(TextOf(kDeploy / "README.md"), "\\b(weir_[a-z_]+)"))
    if (packages.find(name) == std::string::npos) names.push_back(name);
  for (const std::string& name : names) EXPECT_THAT(metrics, HasSubstr("# TYPE " + name + " ")) << name;
}

TEST(Manifests, TheServerTakesTheEnvironmentOfCompose) {
  const TempDir model;
  WriteTinyModel(model.path(), {});
  std::string compose = TextOf(kDeploy / "compose.yaml");
  compose = Loopback(compose.substr(0, compose.find("\nservices:")));
  std::vector<std::string> command = {"/usr/bin/env"};
  const std::regex variable("\n    (WEIR_[A-Z_]+): (\"?)([^\"\n]*?)\\2(?=\n| +#)");
  for (auto it = std::sregex_iterator(compose.begin(), compose.end(), variable); it != std::sregex_iterator();
       ++it)
    command.push_back((*it)[1].str() + "=" + (*it)[3].str());
  EXPECT_THAT(command, SizeIs(6));
  command.insert(command.end(), {WEIR_SERVER_BINARY, "--model", "tiny=" + model.path()});
  StartedServer server(command);
  EXPECT_GT(server.port, 0);
  EXPECT_GT(server.metrics_port, 0);
}

TEST(Manifests, WhoIsStoppedMayDrainFirst) {
  const std::string config = TextOf(kBase / "weir.conf"), pods = TextOf(kBase / "statefulset.yaml");
  const absl::Duration delay = TimeIn(config, "\ndrain-delay = \"(\\w+)\"");
  const absl::Duration pre_stop = absl::Seconds(std::stoi(FindOne(pods, "sleep: \\{seconds: (\\d+)\\}")));
  const absl::Duration grace =
      absl::Seconds(std::stoi(FindOne(pods, "terminationGracePeriodSeconds: (\\d+)")));
  EXPECT_GT(grace, pre_stop + delay + TimeIn(config, "\ndrain-timeout = \"(\\w+)\""));
  EXPECT_GE(delay, absl::Seconds(5)) << "HAProxy needs 1.6 s to notice, and more when it is busy";

  const std::string compose = TextOf(kDeploy / "compose.yaml");
  const std::string replica = compose.substr(0, compose.find("\nservices:"));
  const absl::Duration compose_delay = TimeIn(replica, "WEIR_DRAIN_DELAY: (\\w+)");
  EXPECT_GE(compose_delay, absl::Seconds(5));
  EXPECT_GT(TimeIn(replica, "stop_grace_period: (\\w+)"),
            compose_delay + TimeIn(replica, "WEIR_DRAIN_TIMEOUT: (\\w+)"));
}

TEST(Manifests, TheProxyKnowsEveryReplica) {
  const std::string proxy = TextOf(kDeploy / "proxy/haproxy.cfg");
  const std::vector<std::string> servers = FindAll(proxy, "\n  server (weir-\\d+) ");
  for (size_t i = 0; i < servers.size(); ++i) {
    EXPECT_EQ(servers[i], "weir-" + std::to_string(i));
    EXPECT_THAT(proxy, HasSubstr(" \"" + servers[i] + "${WEIR_DOMAIN}:7070\""));
  }
  EXPECT_EQ(std::to_string(servers.size()),
            FindOne(TextOf(kBase / "autoscaler.yaml"), "maxReplicas: (\\d+)"));
  const std::vector<std::string> composed = FindAll(TextOf(kDeploy / "compose.yaml"), "\n  (weir-\\d+):");
  EXPECT_THAT(composed, SizeIs(2));
  for (const std::string& name : composed) EXPECT_THAT(servers, ::testing::Contains(name));

  const std::string pods = TextOf(kBase / "statefulset.yaml");
  EXPECT_EQ(FindOne(pods, "metadata:\n  name: ([a-z-]+)"), "weir");
  EXPECT_EQ(FindOne(TextOf(kBase / "proxy.yaml"), "name: WEIR_DOMAIN, value: ([a-z.-]+)"),
            "." + FindOne(pods, "serviceName: ([a-z-]+)") + "." +
                FindOne(TextOf(kBase / "namespace.yaml"), "name: ([a-z-]+)") + ".svc.cluster.local");
}

TEST(Manifests, TheProxiesKnowEachOther) {
  const std::string config = TextOf(kDeploy / "proxy/haproxy.cfg"), pods = TextOf(kBase / "proxy.yaml"),
                    services = TextOf(kBase / "services.yaml");
  const std::string set = FindOne(pods, "kind: StatefulSet\nmetadata:\n  name: ([a-z-]+)");
  const std::string port = FindOne(pods, "name: WEIR_PEERS, value: \":(\\d+)\"");
  EXPECT_EQ(FindOne(pods, "name: peers, containerPort: (\\d+)"), port);
  std::vector<std::string> names;
  for (int i = 0; i < std::stoi(FindOne(pods, "\n  replicas: (\\d+)")); ++i)
    names.push_back(set + "-" + std::to_string(i));
  EXPECT_THAT(names, SizeIs(2));
  EXPECT_EQ(FindAll(config, "if streq\\(\"\\$HAPROXY_LOCALPEER\",([a-z0-9-]+)\\)"), names);
  for (const std::string& name : names)
    EXPECT_THAT(config, HasSubstr("\n  server " + name + " " + name + ":" + port + "\n"));
  EXPECT_EQ(FindAll(services, "\n  name: ([a-z-]+-\\d+)"), names);
  EXPECT_EQ(FindAll(services, "pod-name: ([a-z-]+-\\d+)"), names);
  EXPECT_EQ(FindAll(services, "name: peers, port: (\\d+)"), std::vector<std::string>(2, port));
}

// HAProxy's own 30 s are too long for a test with a DNS that is down: dns_test.cc sees 6.
TEST(Manifests, AReplicaKeepsItsAddressWhileTheDnsIsDown) {
  const std::string config = TextOf(kDeploy / "proxy/haproxy.cfg");
  for (const std::string fault : {"timeout", "refused", "other"})
    EXPECT_GE(TimeIn(config, "\n  hold " + fault + " (\\w+)"), absl::Hours(1)) << fault;
}

TEST(Manifests, EveryFileIsInItsKustomization) {
  for (const fs::path& folder :
       {kBase, kDeploy / "kubernetes/overlays/cpu", kDeploy / "kubernetes/overlays/gpu"}) {
    const std::string list = TextOf(folder / "kustomization.yaml");
    std::set<std::string> there, listed;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename() != "kustomization.yaml") there.insert(entry.path().filename());
    for (const std::string& name : FindAll(list, "(?:- |path: |\\[)([a-z]+\\.(?:yaml|conf))\\b"))
      listed.insert(name);
    EXPECT_EQ(there, listed) << folder;
    for (const std::string& other : FindAll(list, "[\\[ ]((?:\\.\\./)+[a-z]+)"))
      EXPECT_TRUE(fs::exists(folder / other / "kustomization.yaml")) << other;
  }
}

}  // namespace
}  // namespace weir::testing
