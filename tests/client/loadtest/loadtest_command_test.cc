// `weir loadtest` as its users run it: a process, and a server in this one.
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/loadtest/terminal_screen.h"
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
using ::testing::StartsWith;
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
      {{"--positions", "5000"},
       "--positions: between one position and none there is no slope: give two or more, such as 5000,100000"},
      {{"--positions", "5000,1000"},
       "--positions: positions have to rise, by 16 at least, which are generated at each: 1000 comes after "
       "5000"},
      {{"--csv", "no-such/r.csv"}, "cannot write 'no-such/r.csv': No such file or directory"},
      {{"--html", "/"}, "cannot write '/': Is a directory"},
      {{"--session-ttl", "1m"}, "--session-ttl is of sessions: give --turns, --positions or --capacity, too"},
      {{"--drain", "1s", "-n", "5"}, "--drain begins when --duration is over: give a --duration, too"},
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

// An option that a run would not look at is refused, whichever it is.
TEST(LoadtestCommand, WhatTheAskedPhasesDoNotUseIsRefused) {
  const TempFile prompts("a\n");
  const std::vector<std::vector<std::string>> of_traffic = {
      {"--warmup", "1s"},        {"--drain", "1s"},        {"--prompts", prompts.path()},
      {"--prompt-tokens", "5"},  {"--output-tokens", "5"}, {"--turns", "2"},
      {"--limit-ttft", "200ms"}, {"--limit-tpot", "20ms"}, {"--limit-e2e", "2s"},
      {"--fail-on-empty"},       {"--fail-on-error"}};
  for (const std::vector<std::string>& phase :
       {std::vector<std::string>{"--positions", "10,200"}, std::vector<std::string>{"--capacity"}})
    for (const std::vector<std::string>& unused : of_traffic) {
      std::vector<std::string> arguments = {"loadtest"};
      arguments.insert(arguments.end(), phase.begin(), phase.end());
      arguments.insert(arguments.end(), unused.begin(), unused.end());
      const ChildResult result = RunWeir(arguments);
      EXPECT_EQ(result.exit, 2) << unused[0];
      EXPECT_EQ(result.err,
                fmt::format("weir: {} is of traffic, and {} makes none: leave it out, or ask for traffic, "
                            "too, with --concurrency, --rate, --duration or --requests\n",
                            unused[0], phase[0]));
    }
  const ChildResult weight =
      RunWeir({"loadtest", "-m", "a=3", "-m", "b", "--capacity", "--positions", "10,200"});
  EXPECT_EQ(weight.exit, 2);
  EXPECT_THAT(weight.err,
              HasSubstr("the weight of -m MODEL=WEIGHT is of traffic, and --positions with --capacity "
                        "makes none"));
  for (const auto& of_growth : {"--sessions", "--piece", "--itl-tokens"})
    EXPECT_THAT(RunWeir({"loadtest", "--capacity", of_growth, "5"}).err,
                HasSubstr(fmt::format("{} is of the growth to positions: give --positions, too", of_growth)));
  // With traffic besides they are of use: what is wrong then is the server's address.
  EXPECT_EQ(RunWeir({"--server", "127.0.0.1:1", "loadtest", "--capacity", "-n", "5", "--turns", "2",
                     "--session-ttl", "1m", "--fail-on-error"})
                .exit,
            3);
}

TEST(LoadtestCommand, NoReportIsWrittenOverAnother) {
  const TempDir dir;
  const std::string folder = dir.path(), path = folder + "/r";
  ASSERT_EQ(mkdir((folder + "/sub").c_str(), 0700), 0);
  ASSERT_EQ(symlink(folder.c_str(), (folder + "/link").c_str()), 0);
  ASSERT_EQ(symlink((folder + "/there").c_str(), (folder + "/to-there").c_str()), 0);
  dir.Write("there", "as it was");
  const std::vector<std::pair<std::string, std::string>> same = {{path, path},
                                                                 {path, folder + "//r"},
                                                                 {path, folder + "/sub/../r"},
                                                                 {folder + "/./r", path},
                                                                 {path, folder + "/link/r"},
                                                                 {folder + "/there", folder + "/to-there"}};
  const std::vector<std::pair<std::string, std::string>> options = {
      {"--json", "--csv"}, {"--json", "--html"}, {"--csv", "--html"}};
  for (const auto& [first, second] : same)
    for (const auto& [option, other] : options) {
      const ChildResult result = RunWeir({"loadtest", option, first, other, second});
      EXPECT_EQ(result.exit, 2) << first << " " << second;
      EXPECT_EQ(result.err,
                fmt::format("weir: {} '{}' and {} '{}' are one file: name another for one of the two\n",
                            option, first, other, second));
    }
  // Standard output takes one.
  EXPECT_EQ(RunWeir({"loadtest", "--csv", "-", "--html", "-"}).err,
            "weir: --csv and --html both write to standard output: name a file for one of the two\n");
  EXPECT_THAT(RunWeir({"--json", "loadtest", "--csv", "-"}).err,
              HasSubstr("--json and --csv both write to standard output"));
  EXPECT_THAT(
      RunWeir({"loadtest", "--csv", "/dev/stdout"}).err,
      HasSubstr("--csv '/dev/stdout' is where standard output goes: write --csv -, or name another file"));
  EXPECT_EQ(ReadFile(folder + "/there"), "as it was");
  // What takes everything takes two.
  EXPECT_EQ(
      RunWeir({"--server", "127.0.0.1:1", "loadtest", "--csv", "/dev/null", "--html", "/dev/null"}).exit, 3);
}

TEST(LoadtestCommand, AnyReportGoesToStandardOutputInPlaceOfTheTable) {
  ServerFixture server({MakeServedFake("fake")});
  const TempDir dir;
  const std::string path = dir.path() + "/r.json", link = dir.path() + "/latest.json";
  dir.Write("r.json", "an older one");
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  const std::vector<std::string> arguments = {"-n", "3", "--output-tokens", "2", "-q", "--json", link};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return RunWeir(Loadtest(server.address(), more));
  };
  const ChildResult csv = run({"--csv", "-"});
  EXPECT_EQ(csv.exit, 0) << csv.err;
  EXPECT_EQ(csv.out.substr(0, 15), "started,server,");
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 2);
  EXPECT_EQ(ReadJson(path)["models"][0]["traffic"][0]["requests"]["completed"],
            3);  // and the link leads there
  const ChildResult html = run({"--html", "-"});
  EXPECT_EQ(html.exit, 0) << html.err;
  EXPECT_EQ(html.out.substr(0, 9), "<!DOCTYPE");
  struct stat info = {};
  EXPECT_NE(stat("-", &info), 0);
}

TEST(LoadtestCommand, ThePageHoldsTheRunAndAsksNobodyForAnything) {
  ServerFixture server(TwoFakes());
  const TempDir dir;
  const std::string json_path = dir.path() + "/r.json", html_path = dir.path() + "/r.html";
  // One request each: a single token has no gap after it, and so no ITL.
  const ChildResult result =
      RunWeir(Loadtest(server.address(), {"--compare", "a,b", "-c", "1", "-n", "1", "--output-tokens", "1",
                                          "-q", "--json", json_path, "--html", html_path}));
  EXPECT_EQ(result.exit, 0) << result.err;
  const std::string page = ReadFile(html_path);
  const std::string open = "<script type=\"application/json\" id=\"report\">";
  const size_t from = page.find(open) + open.size();
  const json report = ReadJson(json_path);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(json::parse(page.substr(from, page.find("</script", from) - from), nullptr, false), report);
  const json& traffic = report["models"][1]["traffic"][0];
  EXPECT_EQ(traffic["requests"]["completed"], 1);
  EXPECT_EQ(traffic["itl_ms"], json({{"count", 0},
                                     {"mean", nullptr},
                                     {"p50", nullptr},
                                     {"p90", nullptr},
                                     {"p99", nullptr},
                                     {"p999", nullptr},
                                     {"max", nullptr}}));
  // Nothing is loaded: no address stands in it but the name of SVG, and the run's own data.
  const std::string around = page.substr(0, from) + page.substr(page.find("</script", from));
  const std::string svg = "http://www.w3.org/2000/svg";
  for (size_t at = around.find("://"); at != std::string::npos; at = around.find("://", at + 1))
    EXPECT_EQ(around.substr(at - 4, svg.size()), svg);
  for (const char* reference : {"<link", "@import", "url(", "fetch("})
    EXPECT_EQ(around.find(reference), std::string::npos) << reference;
  for (size_t at = around.find("src=\""); at != std::string::npos; at = around.find("src=\"", at + 1))
    EXPECT_EQ(around.substr(at + 5, 19), "data:image/svg+xml,") << "a figure that is in the page";
}

// As on a terminal of 60 columns: what is drawn meanwhile stays within it and leaves its last state only.
TEST(LoadtestCommand, DrawsOverItselfOnATerminalOfItsWidth) {
  ServerFixture server({MakeServedFake("a-model-with-a-long-name", Slow())});
  const winsize size = {.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1, other = -1;
  ASSERT_EQ(openpty(&terminal, &other, nullptr, nullptr, &size), 0);
  Child::Options options;
  options.env = {"TERM=xterm"};
  options.err_fd = other;
  // Some drawings: half a second of tokens each, and Ctrl-C.
  Child child(Loadtest(server.address(), {"-c", "2", "-d", "1h", "--output-tokens", "100000000"}), options);
  close(other);
  std::string drawn;
  char piece[4096];
  bool interrupted = false;
  for (ssize_t got; (got = read(terminal, piece, sizeof(piece))) > 0;) {
    drawn.append(piece, static_cast<size_t>(got));
    const auto times = std::count(drawn.begin(), drawn.end(), '\x1b');
    if (times >= 4 && !std::exchange(interrupted, true)) child.Signal(SIGINT);
  }
  close(terminal);
  const ChildResult result = child.Wait();
  EXPECT_EQ(result.exit, 130);
  EXPECT_THAT(result.out, HasSubstr("2 cancelled"));
  testing::TerminalScreen screen(60, 24);
  screen.Feed(drawn);
  EXPECT_EQ(screen.wrapped(), 0);
  EXPECT_EQ(screen.unknown(), "");  // the cursor was never hidden
  const std::vector<std::string> lines = screen.Lines();
  ASSERT_EQ(lines.size(), 3u) << drawn;
  EXPECT_EQ(lines[0], "a-model-with-a-long-name, 2 at once");
  EXPECT_THAT(lines[1], HasSubstr("FAILED"));
  EXPECT_THAT(lines[2], StartsWith("a-model-"));  // the rest of it where there is room
  EXPECT_THAT(lines[2], HasSubstr("s of "));
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
