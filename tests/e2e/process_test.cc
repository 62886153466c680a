// The two programs as a user starts them: flags, streams, signals, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ServerProcess, BothTwinsGenerateAndEverySubcommandAnswers) {
  for (const char* model : {"linear", "softmax"}) {
    const auto [text, code] =
        Run({"generate", "-m", model, "--max-tokens", "20", "--temperature", "0", "abc"});
    EXPECT_EQ(code, 0) << text;
    EXPECT_EQ(Run({"generate", "-m", model, "--max-tokens", "20", "--temperature", "0", "abc"}).first, text);
  }
  EXPECT_EQ(Run({"info"}).second, 0);
  EXPECT_THAT(Run({"models"}).first, HasSubstr("linear_attention"));
  EXPECT_THAT(Run({"--json", "tokenize", "-m", "linear", "abc"}).first, HasSubstr("token_ids"));
  EXPECT_EQ(Run({"score", "-m", "softmax", "abcabc"}).second, 0);
  EXPECT_EQ(Run({"sessions", "create", "-m", "linear", "--id", "s1"}).second, 0);
  EXPECT_EQ(Run({"generate", "--session", "s1", "--max-tokens", "5", "hello"}).second, 0);
  EXPECT_THAT(Run({"--json", "sessions", "get", "s1"}).first, HasSubstr("\"position\""));
  EXPECT_EQ(Run({"sessions", "delete", "s1"}).second, 0);
}

TEST_F(ServerProcess, MistakesGiveOneClearLineAndACodeThatMeansSomething) {
  const auto [unknown, unknown_code] = Run({"generate", "-m", "nobody", "abc"});
  EXPECT_EQ(unknown_code, 1);
  EXPECT_THAT(unknown, HasSubstr("nobody"));
  const auto [gone, gone_code] = Run({"generate", "--session", "nobody", "abc"});
  EXPECT_EQ(gone_code, 1);
  EXPECT_THAT(gone, HasSubstr("nobody"));
  Process unreachable({WEIR_CLIENT_BINARY, "--server", "127.0.0.1:1", "info"});
  EXPECT_EQ(unreachable.Wait(), 3);
  EXPECT_THAT(unreachable.output(), HasSubstr("127.0.0.1:1"));
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(Run({"sessions", "create", "-m", "linear", "--id", "c" + std::to_string(i)}).second, 0);
  EXPECT_EQ(Run({"sessions", "create", "-m", "linear"}).second, 5);
}

// What a shell says of weir-server: all output, and the exit code.
std::pair<std::string, int> InShell(const std::string& line) {
  Process shell({"/bin/sh", "-c", "server=$1; " + line, "sh", WEIR_SERVER_BINARY});
  const int code = shell.Wait();
  return {shell.output(), code};
}

TEST(ServerPrints, OutputThatCannotBeWrittenIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  for (const char* option : {"--help", "--version", "--completion bash", "--new-api-key alice"}) {
    const auto [output, code] = InShell(std::string("$server ") + option + " >/dev/full");
    EXPECT_EQ(code, 1) << option;
    EXPECT_THAT(output, HasSubstr("weir-server: cannot write the output: No space left")) << option;
    // A key whose line is lost would be shown as if it were good.
    EXPECT_THAT(output, Not(HasSubstr("weir_"))) << option;
  }
  EXPECT_EQ(InShell("$server --bogus 2>/dev/full").second, 2);
  EXPECT_EQ(InShell("$server --new-api-key alice 2>/dev/full").second, 1);
}

TEST(ServerPrints, AReaderThatGoesAwayIsNoErrorButForAKey) {
  const TempDir dir;
  // The reader has gone before the server starts.
  const auto closed = [&](const std::string& option) {
    return InShell("cd " + dir.path() +
                   " && rm -f pipe && mkfifo pipe && { : <pipe & exec 3>pipe; wait; } && " + "$server " +
                   option + " >&3; echo exit $?");
  };
  for (const char* option : {"--help", "--version", "--completion bash"})
    EXPECT_EQ(closed(option).first, "exit 0\n") << option;
  const std::string key = closed("--new-api-key alice").first;
  EXPECT_THAT(key, AllOf(HasSubstr("no key was made"), HasSubstr("exit 1"), Not(HasSubstr("weir_"))));
}

TEST_F(ServerProcess, TheRangesOfTheClientAreTheServers) {
  // Where one of both is stricter, the ends of a range show it.
  for (const auto& [flag, ends] :
       std::map<std::string, std::vector<std::string>>{{"-n", {"0"}},
                                                       {"--min-tokens", {"0"}},
                                                       {"--temperature", {"0", "3e38"}},
                                                       {"--top-k", {"-1", "2147483647"}},
                                                       {"--top-p", {"0", "1"}},
                                                       {"--min-p", {"0", "1"}},
                                                       {"--repetition-penalty", {"0.01", "100"}},
                                                       {"--presence-penalty", {"-2", "2"}},
                                                       {"--frequency-penalty", {"-2", "2"}},
                                                       {"--logit-bias", {"5=-100", "5=100", "5=-inf"}},
                                                       {"--top-logprobs", {"0", "20"}},
                                                       {"--stop", {std::string(256, 'x')}}}) {
    for (const std::string& end : ends) {
      std::vector<std::string> command = {"generate", "-m", "linear", "--no-stats", flag, end, "abc"};
      if (flag != "-n") command.insert(command.end(), {"-n", "2"});
      const auto [text, code] = Run(command);
      EXPECT_EQ(code, 0) << flag << " " << end << ": " << text;
    }
  }
}

TEST_F(ServerProcess, APagedSessionCountsItsBlocks) {
  ASSERT_EQ(Run({"sessions", "create", "-m", "softmax", "--id", "s"}).second, 0);
  const auto state_bytes = [&] {
    return nlohmann::json::parse(Run({"--json", "sessions", "list"}).first, nullptr, false)["state_bytes"]
        .get<int64_t>();
  };
  EXPECT_EQ(state_bytes(), 0) << "an empty session holds no block";
  ASSERT_EQ(Run({"generate", "--session", "s", "--max-tokens", "5", "--ignore-eos", "hello"}).second, 0);
  const auto model = nlohmann::json::parse(Run({"--json", "models", "get", "softmax"}).first, nullptr, false);
  const int64_t block = model["state"]["block_bytes"];
  EXPECT_GT(block, 0);
  EXPECT_GT(state_bytes(), 0);
  EXPECT_EQ(state_bytes() % block, 0);
  EXPECT_THAT(Run({"info"}).first, HasSubstr(std::to_string(block) + " B)"));
  EXPECT_EQ(server_->ReadUntil("ready").find(" 0 bytes"), std::string::npos) << server_->output();
}

TEST_F(ServerProcess, ATakenPortIsOneClearLine) {
  Process second({WEIR_SERVER_BINARY, "--listen", address_, "--model", linear_.path()});
  EXPECT_EQ(second.Wait(), 4);
  EXPECT_THAT(second.output(), HasSubstr("cannot listen on '" + address_ + "'"));
  EXPECT_EQ(std::count(second.output().begin(), second.output().end(), '\n'), 1) << second.output();
}

TEST_F(ServerProcess, DEP_04_TermDrainsAndEndsWithZero) {
  Process stream(Weir({"generate", "-m", "linear", "--max-tokens", "20000", "--ignore-eos", "abc"}));
  ASSERT_TRUE(stream.ReadSomething());  // so the turn runs
  server_->Signal(SIGTERM);
  EXPECT_EQ(stream.Wait(), 0) << stream.output();
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
  EXPECT_GE(stream.output().size(), 1000u);
}

TEST_F(ServerProcess, DEP_05_AnIdleServerEndsAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0) << server_->output();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // far below --drain-timeout
}

TEST_F(ServerProcess, InterruptCancelsTheRpcAndFreesTheSlot) {
  Process stream(Weir({"generate", "-m", "linear", "--max-tokens", "100000000", "--ignore-eos", "abc"}));
  ASSERT_FALSE(stream.ReadUntil("a").empty());
  stream.Signal(SIGINT);
  EXPECT_EQ(stream.Wait(), 130);
  nlohmann::json model;
  for (int i = 0; i < 100; ++i) {
    const auto info = nlohmann::json::parse(Run({"--json", "info"}).first, nullptr, false);
    ASSERT_FALSE(info.is_discarded());
    for (const auto& use : info.contains("models") ? info["models"] : info["server"]["models"])
      if (use["model"]["mixer"] == "linear_attention") model = use;
    if (model["slots_free"] == 8) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(model["slots_free"], 8);
}

TEST(ServerStart, WrongOptionsAndFoldersAreNamed) {
  Process no_model({WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0"});
  EXPECT_EQ(no_model.Wait(), 2);
  EXPECT_THAT(no_model.output(), HasSubstr("--model"));
  Process bad_folder({WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--model", "/nonexistent"});
  EXPECT_EQ(bad_folder.Wait(), 3);
  EXPECT_THAT(bad_folder.output(), HasSubstr("/nonexistent"));
  // A failure after the models are loaded is an error like any other.
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  for (const std::vector<std::string>& sizes :
       {std::vector<std::string>{"--state-memory", "1"}, {"--state-memory", "1", "--kv-memory", "1"}}) {
    std::vector<std::string> command = {WEIR_SERVER_BINARY, "--listen", "127.0.0.1:0", "--model",
                                        folder.path()};
    command.insert(command.end(), sizes.begin(), sizes.end());
    Process no_room(command);
    EXPECT_EQ(no_room.Wait(), 3) << no_room.output();
  }
  Process bad_listen({WEIR_SERVER_BINARY, "--model", folder.path(), "--listen", "foo"});
  EXPECT_EQ(bad_listen.Wait(), 2);
  EXPECT_THAT(bad_listen.output(), HasSubstr("--listen: 'foo' has no port; write HOST:PORT"));
  Process small_step({WEIR_SERVER_BINARY, "--model", folder.path(), "--max-step-tokens", "64"});
  EXPECT_EQ(small_step.Wait(), 2) << small_step.output();
  Process bad_flag({WEIR_SERVER_BINARY, "--no-such-flag"});
  EXPECT_EQ(bad_flag.Wait(), 2);
}

}  // namespace
}  // namespace weir::testing
