// The `weir` command: streams, input, signals and exit status.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/child.h"
#include "tests/client/command_lines.h"
#include "tests/client/scripted_server.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Sends one delta, then stays silent until the client goes away.
ScriptedServer::OnGenerate Stalling(std::atomic<bool>* cancelled) {
  return [cancelled](grpc::ServerContext* context, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    writer->Write(DeltaEvent(3, "so far", {7}));
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    cancelled->store(true);
    return grpc::Status::CANCELLED;
  };
}

bool ComesTrue(const std::atomic<bool>& flag) {
  for (int i = 0; i < 30000 && !flag.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag.load();
}

TEST(CommandGenerate, PrintsTheTextAndOneNewline) {
  ScriptedServer server;
  server.on_generate = ScriptedServer::Texts({"Once", " upon\n", "a tïme \xf0\x9f\xa6\x8a", ""});
  const ChildResult result = RunWeir(At(server, {"generate", "hi"}));
  EXPECT_EQ(result.exit, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon\na tïme \xf0\x9f\xa6\x8a\n");
  EXPECT_THAT(result.err, IsEmpty()) << "the summary is for terminals";
  EXPECT_EQ(server.generate_request().prompt().text(), "hi");
}

TEST(CommandGenerate, EachDeltaIsOutBeforeTheNextOneComes) {
  std::promise<void> seen;
  std::shared_future<void> go(seen.get_future());
  ScriptedServer server;
  server.on_generate = [go](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    writer->Write(DeltaEvent(3, "first", {1}));
    go.wait();
    writer->Write(DeltaEvent(4, " second", {2}));
    writer->Write(FinishEvent(2, 5));
    return grpc::Status::OK;
  };
  Child child(At(server, {"generate", "hi"}));
  EXPECT_TRUE(child.WaitForOutput("first"));
  seen.set_value();
  EXPECT_EQ(child.Wait().out, "first second\n");
}

TEST(CommandGenerate, StatsSayTokensSpeedAndReason) {
  ScriptedServer server;
  const ChildResult result = RunWeir(At(server, {"generate", "--stats", "hi"}));
  EXPECT_EQ(result.out, "ab\n");
  EXPECT_THAT(result.err, AllOf(StartsWith("2 tokens"), HasSubstr("tok/s"), HasSubstr("first after"),
                                HasSubstr("max_tokens 2"), HasSubstr("prompt 3 tokens")));
}

TEST(CommandGenerate, LogprobsPrintALinePerToken) {
  ScriptedServer server;
  server.on_generate = [](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    v1::GenerateResponse event = DeltaEvent(3, "a", {5});
    auto* token = event.mutable_delta()->add_logprobs();
    token->set_token_id(5);
    token->set_logprob(-0.5f);
    token->set_piece("\xff\n");
    auto* top = token->add_top();
    top->set_token_id(6);
    top->set_logprob(-1.25f);
    top->set_piece("b");
    writer->Write(event);
    writer->Write(FinishEvent(1, 4));
    return grpc::Status::OK;
  };
  const ChildResult result = RunWeir(At(server, {"generate", "--top-logprobs", "1", "hi"}));
  EXPECT_EQ(result.out, "-0.5\t5\t\\xff\\n\t6:-1.25:b\n");
}

TEST(CommandJson, EventsAreOneObjectALineWithNumbersAndEscapes) {
  const std::string nasty = "q\" b\\ n\n t\t z\x01 \xe2\x80\xa8 \xf0\x9f\xa6\x8a";
  ScriptedServer server;
  server.on_generate = [&](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(int64_t{1} << 60, 3));
    v1::GenerateResponse event = DeltaEvent((int64_t{1} << 60) + 3, nasty, {5});
    auto* token = event.mutable_delta()->add_logprobs();
    token->set_logprob(-0.1f);
    token->set_piece("\xff\xfe\x01\x00");
    writer->Write(event);
    v1::GenerateResponse finish = FinishEvent(1, 4);
    finish.mutable_finish()->mutable_time_limit()->set_nanos(1500000);
    writer->Write(finish);
    return grpc::Status::OK;
  };
  const ChildResult result = RunWeir(At(server, {"generate", "hi", "--json"}));
  EXPECT_EQ(result.exit, 0) << result.err;
  const std::vector<nlohmann::json> events = JsonLines(result.out);
  ASSERT_EQ(events.size(), 3u) << result.out;
  EXPECT_EQ(events[0]["prompt_info"]["reused_tokens"], int64_t{1} << 60);
  EXPECT_EQ(events[0]["prompt_info"]["seed"], 18446744073709551615u);
  EXPECT_EQ(events[0]["prompt_info"]["miss_reason"], "") << "plain fields are there when empty, too";
  EXPECT_EQ(events[1]["delta"]["text"], nasty);
  EXPECT_EQ(events[1]["delta"]["logprobs"][0]["piece"], "//4B");
  EXPECT_THAT(result.out, HasSubstr("\"logprob\":-0.1,")) << "the shortest form of the float";
  EXPECT_EQ(events[2]["finish"]["time_limit"], "0.001500s");
  EXPECT_FALSE(events[2]["finish"].contains("max_tokens")) << "only the reason that fired";
}

TEST(CommandJson, ErrorsAreOneObjectOnStandardError) {
  ScriptedServer server;
  server.status =
      RichStatus(grpc::StatusCode::NOT_FOUND, "SESSION_NOT_FOUND", "no \"x\"\nhere", {{"session", "x"}}, 3);
  const ChildResult result = RunWeir(At(server, {"--json", "sessions", "get", "x"}));
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.out, IsEmpty());
  const std::vector<nlohmann::json> lines = JsonLines(result.err);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(lines[0]["error"]["reason"], "SESSION_NOT_FOUND");
  EXPECT_EQ(lines[0]["error"]["message"], "no \"x\"\nhere");
  EXPECT_EQ(lines[0]["error"]["metadata"]["session"], "x");
  EXPECT_EQ(lines[0]["error"]["retry_after_seconds"], 3.0);
}

TEST(CommandPrompt, StandardInputAndFilesArriveByteForByte) {
  using std::string_literals::operator""s;
  const std::string text = "tab\tnul\0 \xf0\x9f\xa6\x8a\r\n\n"s;
  const TempFile file(text);
  ScriptedServer server;
  for (const std::vector<std::string>& source : std::vector<std::vector<std::string>>{
           {"-"}, {}, {"--file", "-"}, {"--file", file.path()}, {"-f", file.path()}}) {
    std::vector<std::string> arguments = At(server, {"generate"});
    arguments.insert(arguments.end(), source.begin(), source.end());
    const ChildResult result = RunWeir(arguments, text);
    EXPECT_EQ(result.exit, 0) << result.err;
    EXPECT_EQ(server.generate_request().prompt().text(), text);
  }
}

TEST(CommandPrompt, TextThatLooksLikeSomethingElseStaysText) {
  ScriptedServer server;
  for (const std::string text : {"info", "generate", "[a,b]", "{}", "a=b", "%%", "", " "}) {
    EXPECT_EQ(RunWeir(At(server, {"generate", text})).exit, 0) << text;
    EXPECT_EQ(server.generate_request().prompt().text(), text);
    EXPECT_TRUE(server.generate_request().prompt().has_text());
  }
  for (const std::string text : {"--help", "-n", "- a", "-5"}) {
    EXPECT_EQ(RunWeir(At(server, {"generate", "--", text})).exit, 0) << text;
    EXPECT_EQ(server.generate_request().prompt().text(), text);
  }
}

TEST(CommandPrompt, MayBeMissingWithASessionOnly) {
  ScriptedServer server;
  EXPECT_EQ(RunWeir(At(server, {"generate", "-s", "abc"}), "not read").exit, 0);
  EXPECT_FALSE(server.generate_request().has_prompt());
  EXPECT_EQ(server.generate_request().session(), "sessions/abc");
  EXPECT_EQ(server.session_id(), "abc");
}

TEST(CommandPrompt, WhatCannotTravelIsRefusedBeforeTheServerIsAsked) {
  ScriptedServer server;
  const TempFile latin1("caf\xe9");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"generate", "\xff"},
                                             {"generate", "-f", latin1.path()},
                                             {"generate", "\xed\xa0\x80"},  // a surrogate
                                             {"generate", "cut \xf0\x9f"},
                                             {"generate", "-f", "/nowhere/at/all"},
                                             {"generate", "-f", "/"},
                                             {"generate", "a", "-f", latin1.path()},
                                             {"generate", "--token-ids", "1,x"},
                                             {"generate", "--token-ids", "1,,2"},
                                             {"generate", "--token-ids", ",1"},
                                             {"generate", "--token-ids", "1,"},
                                             {"generate", "--token-ids", "1, "},
                                             {"generate", "--token-ids", "1 , , 2"},
                                             {"generate", "--token-ids", ","},
                                             {"generate", "--token-ids", " "},
                                             {"generate", "--token-ids", ""},
                                             {"generate", "--token-ids", "-1"},
                                             {"generate", "--stop-token", "5,", "hi"},
                                             {"detokenize", "1,", ",2"},
                                             {"generate", "two", "words"}}) {
    const ChildResult result = RunWeir(At(server, arguments));
    EXPECT_EQ(result.exit, 2) << result.err;
    EXPECT_THAT(result.err, StartsWith("weir: "));
  }
  EXPECT_EQ(server.calls(), 0);
}

TEST(CommandExit, SaysWhatKindOfErrorItWas) {
  struct Case {
    grpc::Status status;
    int exit;
  };
  const std::vector<Case> cases = {
      {RichStatus(grpc::StatusCode::INVALID_ARGUMENT, "INVALID_FIELDS", "bad top_p"), 1},
      {RichStatus(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "no such model"), 1},
      {RichStatus(grpc::StatusCode::UNAVAILABLE, "DRAINING", "the server drains", {}, 1), 1},
      {grpc::Status(grpc::StatusCode::INTERNAL, "oops"), 1},
      {grpc::Status(grpc::StatusCode::UNIMPLEMENTED, ""), 1},
      {grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"), 3},
      {RichStatus(grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE", "too late"), 4},
      {RichStatus(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", "64 turns wait", {}, 2), 5},
      {RichStatus(grpc::StatusCode::RESOURCE_EXHAUSTED, "CLIENT_TOO_SLOW", "reader too slow"), 1},
      {grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 8)"), 1},
      {grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many pings"), 1},
      {RichStatus(grpc::StatusCode::CANCELLED, "SHUTDOWN", "the server ends"), 1}};
  ScriptedServer server;
  for (const Case& c : cases) {
    server.on_generate = [&](grpc::ServerContext*, ScriptedServer::Writer*) { return c.status; };
    const ChildResult result = RunWeir(At(server, {"generate", "hi"}));
    EXPECT_EQ(result.exit, c.exit) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << "one line: " << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("weir: "), HasSubstr(c.status.error_message())));
  }
  server.on_generate = [&](grpc::ServerContext*, ScriptedServer::Writer*) { return cases[7].status; };
  EXPECT_EQ(RunWeir(At(server, {"generate", "hi"})).err,
            "weir: 64 turns wait (QUEUE_FULL; try again in 2s)\n");
}

TEST(CommandExit, AnErrorPrintsNoHeadOfAListThatDoesNotCome) {
  ScriptedServer server;
  server.status = RichStatus(grpc::StatusCode::UNAUTHENTICATED, "API_KEY_MISSING", "a key is wanted");
  for (const std::vector<std::string>& list :
       {std::vector<std::string>{"models"}, {"sessions", "list"}, {"sessions", "snapshots", "s"}}) {
    const ChildResult result = RunWeir(At(server, list));
    EXPECT_EQ(result.exit, 1);
    EXPECT_THAT(result.out, IsEmpty()) << list.back();
  }
}

TEST(CommandExit, AnErrorInMidStreamKeepsWhatArrived) {
  ScriptedServer server;
  server.on_generate = [](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    writer->Write(DeltaEvent(3, "half", {1}));
    return RichStatus(grpc::StatusCode::INTERNAL, "NONFINITE_LOGITS", "logits are not finite");
  };
  const ChildResult result = RunWeir(At(server, {"generate", "hi"}));
  EXPECT_EQ(result.exit, 1);
  EXPECT_EQ(result.out, "half\n");
  EXPECT_THAT(result.err, HasSubstr("NONFINITE_LOGITS"));
}

TEST(CommandExit, AGapInTheStreamIsAnError) {
  ScriptedServer server;
  server.on_generate = [](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    writer->Write(DeltaEvent(4, "lost", {1}));
    writer->Write(FinishEvent(1, 5));
    return grpc::Status::OK;
  };
  const ChildResult result = RunWeir(At(server, {"generate", "hi"}));
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.err, HasSubstr("STREAM_GAP"));
}

TEST(CommandExit, BadUsageIs2WithOneLine) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--bogus"},
                                             {"frobnicate"},
                                             {"generate", "--bogus", "hi"},
                                             {"generate", "-t", "warm", "hi"},
                                             {"generate", "-n", "1.5", "hi"},
                                             {"generate", "--seed", "-1", "hi"},
                                             {"generate", "--seed", "18446744073709551616", "hi"},
                                             {"generate", "--seed", "0x10", "hi"},
                                             {"generate", "--top-k", "99999999999", "hi"},
                                             {"generate", "--seed", "1", "--seed", "2", "hi"},
                                             {"generate", "--logit-bias", "42", "hi"},
                                             {"generate", "--logit-bias", "x=1", "hi"},
                                             {"generate", "--stop"},
                                             {"generate", "--stop", "", "hi"},
                                             {"generate", "--stop", std::string(257, 'x'), "hi"},
                                             {"generate", "-n", "2", "--min-tokens", "3", "hi"},
                                             {"generate", "--expected-position", "-1", "hi"},
                                             {"generate", "--logprobs=3", "hi"},
                                             {"sessions", "append", "s", "--expected-position", "-1", "hi"},
                                             {"sessions", "list", "--limit", "0"},
                                             {"--server", "", "info"},
                                             {"--server", "127.0.0.1:99999", "info"},
                                             {"--server", "127.0.0.1:abc", "info"},
                                             {"--server", ":7070", "info"},
                                             {"generate", "--max-time", "soon", "hi"},
                                             {"--timeout", "0", "info"},
                                             {"sessions"},
                                             {"sessions", "get"},
                                             {"sessions", "delete"},
                                             {"detokenize", "x"}}) {
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 2) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_THAT(result.err, StartsWith("weir: "));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(CommandExit, ValuesThatNoModelTakesAre2AndTheRangeIsNamed) {
  struct Case {
    const char* flag;
    std::vector<std::string> values;
    const char* range;
  };
  for (const Case& c : {Case{"-n", {"-1", "1000000000001"}, "a whole number from 0 to 1000000000000"},
                        {"--min-tokens", {"-1"}, "a whole number of at least 0"},
                        {"--temperature", {"-0.1", "nan", "inf", "-inf"}, "a finite number of at least 0"},
                        {"--top-k", {"-2"}, "a whole number of at least -1"},
                        {"--top-p", {"-0.1", "2", "nan", "inf"}, "a number from 0 to 1"},
                        {"--min-p", {"-0.1", "2", "nan", "inf"}, "a number from 0 to 1"},
                        {"--repetition-penalty", {"0", "-1", "101", "nan"}, "a number from 0.01 to 100"},
                        {"--presence-penalty", {"-2.1", "2.1", "nan", "inf"}, "a number from -2 to 2"},
                        {"--frequency-penalty", {"-2.1", "2.1", "nan", "-inf"}, "a number from -2 to 2"},
                        {"--logit-bias", {"1=101", "1=-101", "1=nan", "1=inf", "-1=5"}, "from -100 to 100"},
                        {"--top-logprobs", {"-1", "21"}, "a whole number from 0 to 20"}}) {
    for (const std::string& value : c.values) {
      const ChildResult result = RunWeir({"generate", c.flag, value, "hi"});
      EXPECT_EQ(result.exit, 2) << c.flag << " " << value << ": " << result.err;
      EXPECT_THAT(result.err, AllOf(HasSubstr("'" + value + "'"), HasSubstr(c.range)));
    }
  }
}

TEST(CommandExit, WhatIsUnknownIsNamedWithWhatWasMeant) {
  const auto said = [](std::vector<std::string> arguments) {
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 2);
    return result.err;
  };
  EXPECT_EQ(said({"generate", "--temprature", "1", "hi"}),
            "weir: '--temprature' is no option of weir generate, but --temperature is; see weir --help\n");
  EXPECT_EQ(said({"sessions", "create", "--modle=m"}),
            "weir: '--modle' is no option of weir sessions create, but --model is; see weir --help\n");
  EXPECT_EQ(said({"sessions", "list", "--jsn"}),
            "weir: '--jsn' is no option of weir sessions list, but --json is; see weir --help\n");
  EXPECT_EQ(said({"info", "--verbose"}), "weir: '--verbose' is no option of weir info; see weir --help\n");
  EXPECT_EQ(said({"info", "-x"}), "weir: '-x' is no option of weir info; see weir --help\n");
  EXPECT_EQ(said({"generate", "two", "words"}),
            "weir: 'words' is one argument too many for weir generate; see weir --help\n");
}

TEST(CommandExit, ANumberForLogprobsGetsAHint) {
  const TempFile file("text");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"generate", "--logprobs", "3", "hi"},
                                             {"generate", "--logprobs", "3", "--file", file.path()},
                                             {"generate", "--logprobs=3", "hi"}}) {
    const ChildResult result = RunWeir(arguments);
    EXPECT_EQ(result.exit, 2);
    EXPECT_THAT(result.err, HasSubstr("--logprobs takes no number, --top-logprobs N does"));
  }
  EXPECT_THAT(RunWeir({"generate", "two", "words"}).err, Not(HasSubstr("logprobs")));
}

TEST(CommandExit, NoServerIs3AndSaysHowToStartOne) {
  // Port 1 of loopback is nobody's.
  const ChildResult result = RunWeir({"--server", "127.0.0.1:1", "generate", "hi"});
  EXPECT_EQ(result.exit, 3);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(StartsWith("weir: cannot reach a Weir server at 127.0.0.1:1"),
                                HasSubstr("weir-server --model")));
}

TEST(CommandExit, ATimeLimitIs4) {
  std::atomic<bool> cancelled{false};
  ScriptedServer server;
  server.on_generate = Stalling(&cancelled);
  const ChildResult result = RunWeir(At(server, {"--timeout", "3", "generate", "hi"}));
  EXPECT_EQ(result.exit, 4) << result.err;
  EXPECT_EQ(result.out, "so far\n");
  EXPECT_TRUE(ComesTrue(cancelled));
}

TEST(CommandSignals, CtrlCCancelsTheTurnAndExits130) {
  for (const auto& [signal, exit] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    std::atomic<bool> cancelled{false};
    ScriptedServer server;
    server.on_generate = Stalling(&cancelled);
    Child child(At(server, {"generate", "hi"}));
    ASSERT_TRUE(child.WaitForOutput("so far"));
    child.Signal(signal);
    const ChildResult result = child.Wait();
    EXPECT_EQ(result.exit, exit);
    EXPECT_EQ(result.out, "so far\n");
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_TRUE(ComesTrue(cancelled)) << "the server is told";
  }
}

TEST(CommandSignals, AReaderThatGoesAwayEndsTheTurnQuietly) {
  std::atomic<bool> cancelled{false};
  ScriptedServer server;
  server.on_generate = [&](grpc::ServerContext* context, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 3));
    for (int64_t position = 3; !context->IsCancelled(); ++position) {
      writer->Write(DeltaEvent(position, "text\n", {1}));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cancelled.store(true);
    return grpc::Status::CANCELLED;
  };
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  Child::Options options;
  options.out_fd = pipe_ends[1];
  Child child(At(server, {"generate", "hi"}), options);
  close(pipe_ends[1]);
  char first[5];
  ASSERT_EQ(read(pipe_ends[0], first, sizeof(first)), 5);
  close(pipe_ends[0]);
  const ChildResult result = child.Wait();
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_TRUE(ComesTrue(cancelled));
}

TEST(CommandSignals, OutputThatCannotBeWrittenIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  ScriptedServer server;
  Child::Options options;
  options.out_path = "/dev/full";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"generate", "hi"}, {"--help"}, {"generate", "--help"}, {"--version"}, {"completion", "bash"}}) {
    const ChildResult result = Child(At(server, arguments), options).Wait();
    EXPECT_EQ(result.exit, 1) << arguments[0];
    EXPECT_THAT(result.err, HasSubstr("cannot write the output")) << arguments[0];
  }
}

TEST(CommandServer, ValuesThatAreNotAllowedNameOptionValueAndWhatIs) {
  struct Mistake {
    std::vector<std::string> arguments;
    std::string says;
  };
  for (const Mistake& mistake :
       std::vector<Mistake>{{{"completion", "tcsh"}, "SHELL: 'tcsh' is not one of bash, zsh, fish"},
                            {{"--json=maybe", "info"}, "--json: 'maybe' is neither true nor false"},
                            {{"sessions", "create", "--id="}, "--id has no value; it takes ID"},
                            {{"--server="}, "--server (or WEIR_SERVER) has no value; it takes ADDRESS"},
                            {{"--ca", "", "info"}, "--ca: '' is no value; leave the option out for none"},
                            {{"--api-key-file", "", "info"},
                             "--api-key-file: '' is no value; leave the option out for none"}}) {
    const ChildResult result = RunWeir(mistake.arguments);
    EXPECT_EQ(result.exit, 2);
    EXPECT_EQ(result.err, "weir: " + mistake.says + "; see weir --help\n");
  }
  Child::Options options;
  options.env = {"WEIR_TLS=maybe"};
  EXPECT_EQ(Child({"info"}, options).Wait().err,
            "weir: --tls (or WEIR_TLS): 'maybe' is neither true nor false; see weir --help\n");
}

TEST(CommandServer, TheEnvironmentNamesItAndTheFlagWins) {
  ScriptedServer server;
  Child::Options options;
  options.env = {"WEIR_SERVER=" + server.address()};
  EXPECT_EQ(Child({"generate", "hi"}, options).Wait().exit, 0);
  EXPECT_EQ(Child({"generate", "hi", "--server", "127.0.0.1:1"}, options).Wait().exit, 3);
}

TEST(CommandServer, WhatIsNoAddressNamesFlagAndForm) {
  Child::Options options;
  options.env = {"WEIR_SERVER=127.0.0.1:99999"};
  for (const ChildResult& result :
       {Child({"info"}, options).Wait(), RunWeir({"--server", "127.0.0.1:99999", "info"})}) {
    EXPECT_EQ(result.exit, 2);
    EXPECT_THAT(result.err, AllOf(HasSubstr("--server"), HasSubstr("WEIR_SERVER"), HasSubstr("HOST:PORT"),
                                  HasSubstr("65535")));
  }
}

TEST(CommandOutput, LinesOfGrpcShowOnlyWhenAskedFor) {
  ScriptedServer server;
  Child::Options options;
  options.env = {"GRPC_TRACE=no_such_tracer"};  // gRPC complains as soon as it starts
  const ChildResult silent = Child(At(server, {"generate", "hi"}), options).Wait();
  EXPECT_EQ(silent.exit, 0);
  EXPECT_THAT(silent.err, IsEmpty());
  options.env.emplace_back("GRPC_VERBOSITY=error");
  EXPECT_THAT(Child(At(server, {"generate", "hi"}), options).Wait().err, HasSubstr("no_such_tracer"));
}

TEST(CommandHelp, ExplainsEveryCommandAndTheExitStatus) {
  const ChildResult help = RunWeir({"--help"});
  EXPECT_EQ(help.exit, 0);
  for (const char* word : {"generate", "sessions", "models", "tokenize", "detokenize", "score", "info",
                           "--server", "WEIR_SERVER", "EXIT STATUS", "130", "EXAMPLES"})
    EXPECT_THAT(help.out, HasSubstr(word));
  for (const char* name :
       {"generate", "sessions", "models", "tokenize", "detokenize", "score", "info", "loadtest"}) {
    const ChildResult sub = RunWeir({name, "--help"});
    EXPECT_EQ(sub.exit, 0) << name;
    EXPECT_THAT(sub.out, HasSubstr("EXAMPLES"));
    EXPECT_THAT(sub.out, HasSubstr("EXIT STATUS"));
    EXPECT_THAT(sub.out, HasSubstr(std::string("weir ") + name));
    std::istringstream lines(sub.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
  }
  EXPECT_THAT(RunWeir({"--version"}).out, ::testing::MatchesRegex("weir [0-9.]+\n"));
}

}  // namespace
}  // namespace weir
