// weir loadtest over growth and capacity: real processes, real memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>

#include "nlohmann/json.hpp"
#include "tests/e2e/server_process.h"

namespace weir::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // memory that is given back stays with the sanitizer
#else
constexpr bool kSanitized = false;
#endif

// One run of `weir loadtest`.
struct LoadtestRun {
  int exit = -1;
  std::string output;
  json report;
  // The only model's.
  const json& model() const { return report.at("models").at(0); }
  const json& growth() const { return model().at("growth"); }
};

LoadtestRun RunLoadtest(const std::string& server, std::vector<std::string> arguments) {
  const TempDir folder;
  const std::string file = folder.File("report.json");
  arguments.insert(arguments.begin(),
                   {WEIR_CLIENT_BINARY, "--server", server, "loadtest", "--json", file, "-q"});
  Process process(arguments);
  LoadtestRun run;
  run.exit = process.Wait();
  run.output = process.output();
  std::ifstream in(file);
  run.report = json::parse(in, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(run.report.is_discarded()) << run.output;
  return run;
}

class GrowthOfServer : public ServerProcess {
 protected:
  int64_t FreeSlots(const std::string& model) const {
    const json info = json::parse(Run({"info", "--json"}).first);
    for (const json& use : info.at("server").at("models"))
      if (use.at("model").at("name") == "models/" + model) return use.at("slots_free");
    return -1;
  }
};

// A tiny model's way of some thousand tokens: accounting and arena are exact, and what the heap of a server
// that has just begun still takes is not called a leak. LeakyServer below goes far enough for the verdict.
TEST_F(GrowthOfServer, ConstantStateDoesNotMoveInAccountingAndArena) {
  for (const std::string how : {"append", "generate"}) {
    const LoadtestRun run = RunLoadtest(
        address_, {"-m", "linear", "--positions", "500,1000,2500", "--sessions", "8", "--grow", how});
    const json& growth = run.growth();
    EXPECT_EQ(growth.at("how"), how);
    EXPECT_EQ(growth.at("verdict"), "undecided") << growth.at("why");
    EXPECT_THAT(growth.at("why").get<std::string>(),
                HasSubstr("; for a verdict use --positions 500,1000,2500,"));
    EXPECT_EQ(growth.at("other_clients"), nullptr)
        << "what a server counts of this load test is all there is";
    EXPECT_THAT(run.output, HasSubstr("weir: warning: linear: "));
    EXPECT_THAT(run.output, HasSubstr("weir: the load test is undecided: linear: growth: "));
    EXPECT_EQ(run.exit, 1) << "what is not proven does not pass";
    EXPECT_EQ(growth.at("slope").at("session").at("high"), 0);
    EXPECT_EQ(growth.at("slope").at("arena").at("high"), 0);
    EXPECT_EQ(growth.at("slope").at("device"), nullptr);
    ASSERT_EQ(growth.at("points").size(), 3u);
    const int64_t bytes = run.model().at("state").at("fixed_bytes");
    for (const json& point : growth.at("points")) {
      EXPECT_EQ(point.at("session_bytes"), bytes);
      EXPECT_EQ(point.at("arena_bytes"), 8 * bytes);
      EXPECT_EQ(point.at("tokens"), 8 * point.at("position").get<int64_t>());
      // Of a tiny model all tokens may come in one message, and then there is no time between two.
      const json& itl = point.at("itl_ms");
      if (!itl.is_null()) EXPECT_LE(itl.at("count"), 8 * 15);
      if (!itl.is_null()) EXPECT_GT(itl.at("mean"), 0);
    }
    EXPECT_EQ(FreeSlots("linear"), 8);
  }
}

// 16 MiB of KV blocks are 17,476 tokens of 960 bytes, and eight sessions want more.
TEST_F(GrowthOfServer, PagedStateGrowsAsItsShapesSayUntilItIsRefused) {
  const LoadtestRun run =
      RunLoadtest(address_, {"--compare", "softmax,linear", "--positions", "200,3000", "--sessions", "8"});
  const json& softmax = run.model();
  const json& growth = softmax.at("growth");
  EXPECT_EQ(growth.at("verdict"), "as_expected") << growth.at("why");
  const double expected = growth.at("expected_bytes_per_token");
  EXPECT_EQ(expected, 960);
  EXPECT_NEAR(growth.at("slope").at("arena").at("bytes_per_token"), expected, 0.01 * expected);
  EXPECT_NEAR(growth.at("slope").at("session").at("bytes_per_token"), expected, 0.03 * expected)
      << "of one session, which is a block off";
  EXPECT_EQ(growth.at("stopped").at("reason"), "KV_CAPACITY_EXHAUSTED");
  EXPECT_NEAR(growth.at("stopped").at("position"), 17'476 / 8, 200);
  // It is no failure, and the other model's growth went on to its end.
  const json& linear = run.report.at("models").at(1);
  EXPECT_EQ(linear.at("growth").at("points").size(), 2u);
  EXPECT_EQ(linear.at("growth").at("stopped"), nullptr);
  EXPECT_EQ(linear.at("break_even").at(0).at("against"), "softmax");
  const int64_t even = linear.at("break_even").at(0).at("tokens");
  const int64_t block = softmax.at("state").at("block_bytes"), fixed = linear.at("state").at("fixed_bytes");
  EXPECT_GE((even + 15) / 16 * block, fixed);
  EXPECT_LT((even - 1 + 15) / 16 * block, fixed);
  EXPECT_THAT(run.output, HasSubstr("expected from the shapes"));
  EXPECT_THAT(run.output, HasSubstr("bytes a session at every position; softmax needs less up to position"));
  EXPECT_EQ(FreeSlots("softmax"), 8);
  EXPECT_EQ(FreeSlots("linear"), 8);
}

TEST_F(GrowthOfServer, TheEndOfAContextIsNoFailure) {
  const LoadtestRun run =
      RunLoadtest(address_, {"-m", "softmax", "--positions", "1000,100000", "--sessions", "1"});
  EXPECT_EQ(run.exit, 0) << run.output;
  const json& growth = run.model().at("growth");
  EXPECT_EQ(growth.at("verdict"), "as_expected") << growth.at("why");
  EXPECT_EQ(growth.at("stopped").at("reason"), "CONTEXT_LIMIT_EXCEEDED");
  EXPECT_NEAR(growth.at("stopped").at("position"), 16'384, 1000);
  EXPECT_EQ(FreeSlots("softmax"), 8);
}

TEST_F(GrowthOfServer, CapacityIsWhatTheServerSays) {
  const LoadtestRun run = RunLoadtest(address_, {"-m", "linear", "--capacity"});
  EXPECT_EQ(run.exit, 0) << run.output;
  const json& capacity = run.model().at("capacity");
  EXPECT_EQ(capacity.at("slots"), 8);
  EXPECT_EQ(capacity.at("sessions"), 8);
  EXPECT_EQ(capacity.at("sessions_with_token"), 8);
  EXPECT_EQ(capacity.at("refused_with"), "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_EQ(capacity.at("refused_again"), true);
  EXPECT_EQ(capacity.at("accepted_after_delete"), true);
  EXPECT_EQ(capacity.at("create_ms").at("count"), 8);
  EXPECT_EQ(run.model().at("traffic").size(), 0u) << "nobody asked for traffic";
  EXPECT_EQ(FreeSlots("linear"), 8);
}

TEST_F(GrowthOfServer, CtrlCLeavesNoSessionBehind) {
  Process process(Weir({"loadtest", "-m", "linear", "--positions", "1000,1000000000", "--sessions", "6"}));
  const auto busy = [&] { return FreeSlots("linear") == 2; };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!busy() && std::chrono::steady_clock::now() < deadline) {
  }
  ASSERT_EQ(FreeSlots("linear"), 2);
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 130) << process.output();
  EXPECT_EQ(FreeSlots("linear"), 8);
}

// A server that really keeps memory of each token: see tests/support/leaky_server.cc.
class LeakyServer : public ::testing::Test {
 protected:
  void Start(const std::string& bytes_per_token) {
    server_ = std::make_unique<Process>(std::vector<std::string>{WEIR_LEAKY_SERVER_BINARY, bytes_per_token});
    const std::string log = server_->ReadUntil("\n");
    ASSERT_THAT(log, HasSubstr("ready "));
    address_ = log.substr(6, log.find('\n') - 6);
  }
  LoadtestRun Grow(const std::string& model) const {
    return RunLoadtest(address_, {"-m", model, "--positions", "4000,500000", "--sessions", "4"});
  }

  std::unique_ptr<Process> server_;
  std::string address_;
};

TEST_F(LeakyServer, FourBytesOfEachTokenFailTheRunAndTheSameLoadWithoutThemPasses) {
  ASSERT_NO_FATAL_FAILURE(Start("4"));
  const LoadtestRun leaky = Grow("leaky");
  EXPECT_EQ(leaky.exit, 1) << leaky.output;
  EXPECT_NE(leaky.growth().at("verdict"), "constant") << leaky.growth().at("why");
  if (!kSanitized) EXPECT_EQ(leaky.growth().at("verdict"), "grows") << leaky.growth().at("why");
  const double slope = leaky.growth().at("slope").at("anonymous").at("bytes_per_token");
  EXPECT_GE(slope, 3.5);
  if (!kSanitized) EXPECT_LE(slope, 8) << "4, and what the heap of a server that has just begun still gets";
  EXPECT_EQ(leaky.growth().at("slope").at("session").at("high"), 0) << "the accounting does not see it";
  EXPECT_EQ(leaky.growth().at("slope").at("arena").at("high"), 0);
  EXPECT_EQ(leaky.report.at("passed"), false);
  EXPECT_THAT(leaky.output,
              HasSubstr("the load test did not pass: leaky: growth: the process's anonymous memory"));
  if (kSanitized) return;
  // The same server and the same load, but for the leak.
  const LoadtestRun sound = Grow("sound");
  EXPECT_EQ(sound.exit, 0) << sound.output;
  EXPECT_EQ(sound.growth().at("verdict"), "constant") << sound.growth().at("why");
}

}  // namespace
}  // namespace weir::testing
