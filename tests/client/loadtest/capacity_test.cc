// The capacity phase on a simulated server.
#include "client/loadtest/capacity.h"
#include "client/loadtest/capacity_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fmt/format.h"
#include "tests/client/loadtest/simulated_loop.h"
#include "tests/client/loadtest/simulated_server.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using testing::SimulatedLoop;
using testing::SimulatedServer;
using testing::SimulatedServerOptions;

class Capacity : public ::testing::Test {
 protected:
  Capacity() {
    server_options_.shape = {false, 640'000, 0, 0};
    server_options_.slots = 13'000;
  }
  const CapacityFigures& Run(std::function<void(SimulatedServer*)> meanwhile = nullptr) {
    server_ = std::make_unique<SimulatedServer>(server_options_, &loop_);
    phase_ = std::make_unique<CapacityPhase>(CapacityOptions{"m", 50, 1}, &loop_, server_.get());
    bool done = false;
    phase_->Start([&] { done = true; });
    if (meanwhile) meanwhile(server_.get());
    loop_.Run();
    EXPECT_TRUE(done);
    EXPECT_TRUE(loop_.idle());
    return phase_->figures();
  }

  SimulatedLoop loop_;
  SimulatedServerOptions server_options_;
  std::unique_ptr<SimulatedServer> server_;
  std::unique_ptr<CapacityPhase> phase_;
};

TEST_F(Capacity, OpensAllThatTheServerHoldsAndNoMore) {
  const CapacityFigures& figures = Run();
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.slots, 13'000);
  EXPECT_EQ(figures.sessions, 13'000);
  EXPECT_EQ(figures.refused_with, "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_EQ(figures.arena_bytes, int64_t{13'000} * 640'000);
  EXPECT_EQ(figures.with_token, 13'000);
  EXPECT_EQ(figures.refused_again, true);
  EXPECT_EQ(figures.accepted_after_delete, true);
  EXPECT_TRUE(server_->sessions.empty());
  EXPECT_EQ(server_->most_at_once, kCallsAtOnce);
  // 51 rounds of 256 calls, 1 ms each, and those that were sent before the first refusal came. A turn takes a
  // call, a prompt token and a token: 3.01 ms.
  EXPECT_EQ(figures.create_ms.count, 13'000);
  EXPECT_DOUBLE_EQ(figures.create_ms.p99, 1);
  EXPECT_NEAR(figures.create_seconds.value(), 0.052, 1e-9);
  EXPECT_EQ(figures.first_token_ms.count, 13'000);
  EXPECT_NEAR(figures.first_token_ms.p50, 3.01, 1e-9);
  EXPECT_EQ(figures.steps, 13'000);
  EXPECT_NEAR(figures.step_ms.value(), *figures.generate_seconds * 1e3 / 13'000, 1e-12);
}

TEST_F(Capacity, SessionsOfOthersAreNotTheServersFault) {
  server_options_.slots = 20;
  const CapacityFigures& figures = Run([](SimulatedServer* server) {
    for (const char* id : {"a", "b", "c"}) server->sessions[id].position = 5;
  });
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.slots, 20);
  EXPECT_EQ(figures.slots_free, 17);
  EXPECT_EQ(figures.sessions, 17);
  EXPECT_EQ(server_->sessions.size(), 3u);
}

// A session of paged state has nothing before its first token.
TEST_F(Capacity, TheArenaIsReadWhenAllHaveAToken) {
  server_options_.slots = 20;
  server_options_.shape = {true, 0, 4096, 16};
  server_options_.kv_blocks = 50;
  const CapacityFigures& figures = Run();
  EXPECT_EQ(figures.failure, "");
  EXPECT_EQ(figures.arena_bytes, 20 * 4096);
  EXPECT_EQ(figures.resident_bytes, (15 << 20) + 20 * 4096);
}

TEST_F(Capacity, WithoutAFreeSlotNothingIsTriedAndTheReasonIsSaid) {
  server_options_.slots = 2;
  const CapacityFigures& figures =
      Run([](SimulatedServer* server) { server->sessions["a"], server->sessions["b"]; });
  EXPECT_EQ(figures.failure, "other sessions have all 2 slots: end them first");
  EXPECT_EQ(figures.sessions, 0);
  EXPECT_EQ(figures.refused_with, "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_EQ(figures.accepted_after_delete, std::nullopt);
  EXPECT_EQ(server_->sessions.size(), 2u);
}

TEST_F(Capacity, FewerSessionsThanTheServerSaysIsAFailure) {
  server_options_.slots = 20;
  const CapacityFigures& figures = Run([this](SimulatedServer* server) {
    // Somebody opens two behind the first look.
    loop_.At(absl::Microseconds(1500), [server] { server->sessions["x"], server->sessions["y"]; });
  });
  EXPECT_THAT(figures.failure, HasSubstr("20 slots are free, and took 18 sessions"));
  EXPECT_EQ(server_->sessions.size(), 2u);
}

TEST_F(Capacity, EverySessionHasToGenerate) {
  server_options_.slots = 20;
  server_options_.shape = {true, 0, 4096, 16};
  server_options_.kv_blocks = 15;
  const CapacityFigures& figures = Run();
  EXPECT_EQ(figures.with_token, 15);
  EXPECT_THAT(figures.failure, HasSubstr("no blocks are left"));
  EXPECT_TRUE(server_->sessions.empty());
}

// Figures come in the order in which they are got; what is behind the end has none, in any form of the
// report.
void ExpectNoneBehindTheEnd(const CapacityFigures& figures, const std::string& context) {
  const std::vector<bool> known = {
      figures.slots.has_value(),         figures.sessions.has_value(),
      figures.with_token.has_value(),    figures.generate_seconds.has_value(),
      figures.arena_bytes.has_value(),   figures.steps.has_value(),
      figures.refused_again.has_value(), figures.accepted_after_delete.has_value()};
  EXPECT_TRUE(std::is_sorted(known.rbegin(), known.rend())) << context;
  // Not one of them was false, or less than all, but for the tokens.
  EXPECT_TRUE(figures.refused_again.value_or(true) && figures.accepted_after_delete.value_or(true))
      << context;
  const nlohmann::ordered_json json = CapacityJson(figures);
  EXPECT_EQ(json["accepted_after_delete"].is_null(), !figures.accepted_after_delete) << context;
  EXPECT_EQ(json["refused_with"].is_null(), !figures.refused_with) << context;
  const std::string text = CapacityText("m", figures);
  EXPECT_EQ(text.find("after one was deleted: not tried") != std::string::npos,
            !figures.accepted_after_delete)
      << context << text;
  EXPECT_EQ(text.find("a token in each: not tried") != std::string::npos, !figures.with_token)
      << context << text;
}

TEST_F(Capacity, AnInterruptAtAnyTimeLeavesNoSessionAndStatesNothingThatWasNotTried) {
  server_options_.slots = 1000;
  int without_opening = 0, without_token = 0, complete = 0;
  for (int i = 0; i <= 25; ++i) {
    const CapacityFigures& figures = Run([&](SimulatedServer*) {
      loop_.At(loop_.Now() + i * absl::Milliseconds(1), [this] { phase_->Interrupt(); });
    });
    EXPECT_EQ(figures.failure, "interrupted") << i;
    EXPECT_TRUE(server_->sessions.empty()) << i;
    ExpectNoneBehindTheEnd(figures, fmt::format("after {} ms: ", i));
    if (i == 0) EXPECT_EQ(figures.slots, std::nullopt);
    if (figures.with_token) EXPECT_EQ(figures.sessions, 1000) << i;
    without_opening += figures.sessions ? 0 : 1;
    without_token += figures.with_token ? 0 : 1;
    complete += figures.accepted_after_delete ? 1 : 0;
  }
  EXPECT_GT(without_opening, 0);
  EXPECT_GT(without_token, without_opening);
  EXPECT_GT(complete, 0);
}

TEST_F(Capacity, AServerThatIsLostEndsItWithTheReasonAndWhatWasMeasured) {
  server_options_.slots = 1000;
  for (int i = 0; i < 22; ++i) {
    const CapacityFigures& figures = Run([&](SimulatedServer* server) {
      loop_.At(loop_.Now() + i * absl::Milliseconds(1), [server] { server->lost = true; });
    });
    EXPECT_EQ(
        figures.failure,
        fmt::format("the server is gone; up to then {} sessions were opened, and {} of them had a token",
                    figures.sessions.value_or(0), figures.with_token.value_or(0)))
        << i;
    EXPECT_TRUE(absl::IsUnavailable(phase_->lost())) << i;
    ExpectNoneBehindTheEnd(figures, fmt::format("after {} ms: ", i));
  }
}

}  // namespace
}  // namespace weir
