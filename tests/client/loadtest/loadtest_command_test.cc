// `weir loadtest` as its users run it: a process, and a server in this one.
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/scripted_server.h"
#include "tests/support/certificates.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::FakeModelOptions;
using ::testing::HasSubstr;
using testing::MakeServedFake;
using testing::ServedModel;
using testing::ServerFixture;
using testing::TempDir;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

json ReadJson(const std::string& path) {
  return json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
}

std::vector<ServedModel> TwoFakes() {
  std::vector<ServedModel> models;
  models.push_back(MakeServedFake("a"));
  models.push_back(MakeServedFake("b"));
  return models;
}

FakeModelOptions Slow() {
  FakeModelOptions options;
  options.step_time = absl::Milliseconds(2);
  return options;
}

std::vector<std::string> Loadtest(const std::string& address, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--server", address, "loadtest"});
  return arguments;
}

v1::ModelUse UseOf(ServerFixture* server, int model) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(server->info().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  return info.models(model);
}

TEST(LoadtestCommand, CountsWhatTheServerCountedToTheToken) {
  ServerFixture server(TwoFakes());
  const TempDir dir;
  const std::string json_path = dir.path() + "/r.json", csv_path = dir.path() + "/r.csv";
  const ChildResult result = RunWeir(Loadtest(server.address(), {"--compare",
                                                                 "a,b",
                                                                 "-c",
                                                                 "1,6",
                                                                 "-n",
                                                                 "20",
                                                                 "--turns",
                                                                 "3",
                                                                 "--prompt-tokens",
                                                                 "1-9",
                                                                 "--output-tokens",
                                                                 "lognormal:20,90",
                                                                 "--seed",
                                                                 "5",
                                                                 "--json",
                                                                 json_path,
                                                                 "--csv",
                                                                 csv_path,
                                                                 "--fail-on-error",
                                                                 "--fail-on-empty"}));
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("6 at once x3 turns"), HasSubstr(server.address())));
  EXPECT_THAT(result.err, HasSubstr("a, 1 at once: a: 20 of 20; 0 running, 60 completed, 0 failed"));
  const json report = ReadJson(json_path);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["passed"], true);
  EXPECT_EQ(report["seed"], 5);
  EXPECT_THAT(report["command"].get<std::string>(), HasSubstr("loadtest --compare a,b -c 1,6 -n 20"));
  ASSERT_EQ(report["models"].size(), 2u);
  for (int m = 0; m < 2; ++m) {
    const v1::ModelUse use = UseOf(&server, m);
    const json& traffic = report["models"][m]["traffic"];
    ASSERT_EQ(traffic.size(), 2u);
    int64_t generated = 0, prompt = 0;
    for (const json& phase : traffic) {
      EXPECT_EQ(phase["requests"]["completed"], 60);
      EXPECT_EQ(phase["requests"]["scheduled"], 60);
      EXPECT_EQ(phase["tokens"]["generated"], phase["server_tokens"]["generated"]);
      EXPECT_EQ(phase["tokens"]["prompt"], phase["server_tokens"]["prompt"]);
      EXPECT_EQ(phase["ttft_ms"]["count"], 60);
      EXPECT_EQ(phase["itl_ms"]["count"], phase["tokens"]["generated"].get<int64_t>() - 60);
      generated += phase["tokens"]["generated"].get<int64_t>();
      prompt += phase["tokens"]["prompt"].get<int64_t>();
    }
    EXPECT_EQ(generated, use.generated_tokens());
    EXPECT_EQ(prompt, use.prompt_tokens());
    EXPECT_EQ(use.sessions(), 0);
    EXPECT_EQ(use.slots_free(), use.slots_total());
    // The same requests to both, and in both phases.
    EXPECT_EQ(traffic[0]["tokens"]["generated"], report["models"][0]["traffic"][1]["tokens"]["generated"]);
  }
  std::istringstream csv(ReadFile(csv_path));
  std::string names, line;
  std::getline(csv, names);
  int lines = 0;
  while (std::getline(csv, line)) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), std::count(names.begin(), names.end(), ','));
    ++lines;
  }
  EXPECT_EQ(lines, 4);
}

TEST(LoadtestCommand, MixedOpenLoopWithTextPromptsOnStandardOutputAsJson) {
  ServerFixture server(TwoFakes());
  Child::Options options;
  options.input = "Once upon a time\n\nThe fox\n";
  Child child(
      Loadtest(server.address(), {"-m", "a=3", "-m", "models/b", "--rate", "500", "--arrivals", "constant",
                                  "-n", "100", "--prompts", "-", "--output-tokens", "4", "--json", "-q"}),
      options);
  const ChildResult result = child.Wait();
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(result.err, "");
  const json report = json::parse(result.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << result.out;
  const json& mixed = report["mixed"][0];
  EXPECT_EQ(mixed["requests"]["completed"], 100);
  EXPECT_EQ(mixed["tokens"]["generated"], 400);
  EXPECT_EQ(mixed["server_tokens"]["generated"], 400);
  EXPECT_EQ(mixed["first_text_ms"]["count"], 100);
  // "<s>" and the bytes of the lines, in turn.
  EXPECT_EQ(mixed["tokens"]["prompt"], 50 * (1 + 16) + 50 * (1 + 7));
  EXPECT_EQ(mixed["models"]["a"]["requests"]["completed"].get<int>() +
                mixed["models"]["b"]["requests"]["completed"].get<int>(),
            100);
}

TEST(LoadtestCommand, RefusalsAreCountedByReasonAndFailTheTestIfAsked) {
  ServerFixture server({MakeServedFake("fake", Slow(), {.slots = 1, .max_waiting = 0})});
  const std::vector<std::string> arguments = {"-c", "4", "-n", "6", "--output-tokens", "300", "--json", "-q"};
  const ChildResult result = RunWeir(Loadtest(server.address(), arguments));
  EXPECT_EQ(result.exit, 0) << result.err;
  const json traffic = json::parse(result.out)["models"][0]["traffic"][0];
  EXPECT_GE(traffic["errors"]["QUEUE_FULL"], 1);
  EXPECT_EQ(traffic["errors"]["QUEUE_FULL"], traffic["requests"]["failed"]);
  EXPECT_EQ(traffic["requests"]["failed"].get<int>() + traffic["requests"]["completed"].get<int>(), 6);
  std::vector<std::string> strict = arguments;
  strict.push_back("--fail-on-error");
  const ChildResult failed = RunWeir(Loadtest(server.address(), strict));
  EXPECT_EQ(failed.exit, 1);
  EXPECT_EQ(json::parse(failed.err)["error"]["reason"], "LOADTEST_FAILED");
  EXPECT_EQ(json::parse(failed.out)["passed"], false);
}

TEST(LoadtestCommand, CtrlCReportsWhatWasMeasuredAndLeavesNoSession) {
  ServerFixture server({MakeServedFake("fake", Slow())});
  const TempDir dir;
  const std::string path = dir.path() + "/r.json";
  Child child(Loadtest(server.address(), {"-c", "3", "--turns", "2", "--output-tokens", "100000000", "-d",
                                          "1h", "--json", path}));
  ASSERT_TRUE(testing::WaitFor([&] { return UseOf(&server, 0).generated_tokens() > 30; }));
  child.Signal(SIGINT);
  const ChildResult result = child.Wait();
  EXPECT_EQ(result.exit, 130);
  EXPECT_THAT(result.out, AllOf(HasSubstr("3 at once x2 turns"), HasSubstr("3 cancelled")));
  const json report = ReadJson(path);
  EXPECT_EQ(report["models"][0]["traffic"][0]["requests"]["cancelled"], 3);
  EXPECT_GT(report["models"][0]["traffic"][0]["tokens"]["generated"], 0);
  EXPECT_EQ(UseOf(&server, 0).sessions(), 0);
}

TEST(LoadtestCommand, SendsKeyAndSessionAndSpeaksTls) {
  const testing::Authority authority("authority");
  const testing::Identity identity = authority.Issue("server", testing::kLocalNames);
  grpc::SslServerCredentialsOptions credentials(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  credentials.pem_key_cert_pairs.push_back({identity.key, identity.cert});
  ScriptedServer server(grpc::SslServerCredentials(credentials));
  server.answers = std::map<std::string, std::string>{
      {"weir.v1.ServerInfo", "models { model { name: 'models/m' vocab_size: 9 } }"}};
  const TempFile ca(authority.cert()), key("secret-key\n");
  // Two tokens in each of two turns of one session, which ends with its deletion.
  const ChildResult result =
      RunWeir({"--server", server.address(), "--ca", ca.path(), "--api-key-file", key.path(), "loadtest",
               "-c", "1", "-n", "1", "--turns", "2", "--output-tokens", "2", "--json", "-q"});
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["models"][0]["traffic"][0]["tokens"]["generated"], 4);
  EXPECT_EQ(server.authorization(), "Bearer secret-key");
  const auto deletion = server.Last<v1::DeleteSessionRequest>();
  const auto turn = server.generate_request();
  EXPECT_EQ(turn.session(), deletion.name());
  EXPECT_TRUE(turn.stop().ignore_eos());
  EXPECT_EQ(turn.stop().max_tokens(), 2);
  const auto refused = RunWeir({"--server", server.address(), "loadtest", "-n", "1"});
  EXPECT_EQ(refused.exit, 3);
  EXPECT_THAT(refused.err, HasSubstr("speaks TLS only: use --tls"));
}

TEST(LoadtestCommand, AStreamWithAGapIsAnErrorAndNoTokenOfItIsCountedTwice) {
  ScriptedServer server;
  server.answers = std::map<std::string, std::string>{
      {"weir.v1.ServerInfo", "models { model { name: 'models/m' vocab_size: 9 } }"}};
  server.on_generate = [](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 1));
    writer->Write(DeltaEvent(1, "a", {5}));
    writer->Write(DeltaEvent(3, "b", {6}));
    writer->Write(FinishEvent(2, 4));
    return grpc::Status::OK;
  };
  const ChildResult result =
      RunWeir({"--server", server.address(), "loadtest", "-c", "1", "-n", "1", "--json", "-q"});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("no request of 1 was completed"));
  const json traffic = json::parse(result.out)["models"][0]["traffic"][0];
  EXPECT_EQ(traffic["errors"], json({{"STREAM_GAP", 1}}));
  EXPECT_EQ(traffic["requests"]["failed"], 1);
  EXPECT_EQ(traffic["tokens"]["generated"], 1);
}

TEST(LoadtestCommand, MistakesNameTheOptionAndTheRemedy) {
  const TempFile prompts("a\nb\n"), empty("\n"), no_text("\xff\n");
  struct Mistake {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Mistake> mistakes = {
      {{"-c", "0"}, "-c,--concurrency: '0' is not a whole number from 1 to 100000; see weir --help"},
      {{"-c", "8,"}, "-c,--concurrency: '' is not a whole number from 1 to 100000; see weir --help"},
      {{"--rate", "0"}, "--rate: '0' is not a number from 0.001 to 1000000; see weir --help"},
      {{"--rate", "nan"}, "--rate: 'nan' is not a number from 0.001 to 1000000; see weir --help"},
      {{"--rate", "1", "-c", "2"},
       "--concurrency is of the closed loop and --rate of the open one: give one of the two"},
      {{"--rate", "1", "--arrivals", "bursts"},
       "--arrivals: 'bursts' is not one of poisson, constant; see weir --help"},
      {{"--arrivals", "constant"}, "--arrivals is of the open loop: give a --rate, too"},
      {{"--think", "1s"}, "--think is between the turns of a session: give --turns, too"},
      {{"--warmup", "40s"}, "--warmup 40s leaves nothing of --duration 30s: make the duration longer"},
      {{"-d", "5 parsecs"},
       "-d,--duration: '5 parsecs' is not a time above zero; write 30s, 1m30s or 500ms; see weir --help"},
      {{"-n", "0"}, "-n,--requests: '0' is not a whole number from 1 to 1000000000; see weir --help"},
      {{"-m", "a=0"}, "-m,--model: '0' is not a number from 0.001 to 1000000; see weir --help"},
      {{"-m", "=2"}, "-m,--model: '=2' names no model; write MODEL or MODEL=WEIGHT; see weir --help"},
      {{"-m", "a", "--compare", "b"},
       "-m sends to its models at the same time and --compare in turn: give one of the two"},
      {{"--compare", "a,,b"}, "--compare: 'a,,b' has an empty name; write A,B,C; see weir --help"},
      {{"--output-tokens", "9-3"},
       "--output-tokens: '9-3' is no length in tokens; write N, A-B (each as likely) or "
       "lognormal:MEDIAN,P99, with whole "
       "numbers from 1 to 100000000, the smaller one first; see weir --help"},
      {{"--prompts", prompts.path(), "--prompt-tokens", "3"},
       "--prompts has lengths of its own: leave out --prompt-tokens"},
      {{"--prompts", "no-such.txt"}, "cannot read 'no-such.txt': No such file or directory"},
      {{"--prompts", empty.path()},
       fmt::format(
           "--prompts '{}': has no prompt; write one a line, or leave the option out for synthetic ones",
           empty.path())},
      {{"--prompts", no_text.path()},
       fmt::format("--prompts '{}': line 1 is not UTF-8: byte 0 of it is 0xff; convert the file",
                   no_text.path())},
      {{"--csv", "no-such/r.csv"}, "cannot write 'no-such/r.csv': No such file or directory"},
      {{"--concurency", "8"},
       "'--concurency' is no option of weir loadtest, but --concurrency is; see weir --help"},
  };
  for (const Mistake& mistake : mistakes) {
    std::vector<std::string> arguments = {"loadtest"};
    arguments.insert(arguments.end(), mistake.arguments.begin(), mistake.arguments.end());
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 2) << mistake.says;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "weir: " + mistake.says + "\n");
  }
}

TEST(LoadtestCommand, WithoutAServerNothingIsWritten) {
  const TempDir dir;
  const std::string path = dir.path() + "/r.json";
  const ChildResult result = RunWeir({"--server", "127.0.0.1:1", "loadtest", "--json", path});
  EXPECT_EQ(result.exit, 3);
  EXPECT_THAT(result.err, HasSubstr("cannot reach a Weir server at 127.0.0.1:1 (Connection refused)"));
  struct stat info = {};
  EXPECT_NE(stat(path.c_str(), &info), 0);

  ServerFixture server(TwoFakes());
  const ChildResult unnamed = RunWeir(Loadtest(server.address(), {"-n", "1"}));
  EXPECT_EQ(unnamed.exit, 1);
  EXPECT_THAT(unnamed.err, HasSubstr("name a model with -m, or several with --compare; this server has a "));
}

}  // namespace
}  // namespace weir
