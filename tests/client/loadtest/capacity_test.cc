// The capacity phase on a simulated server.
#include "client/loadtest/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_TRUE(figures.refused_again);
  EXPECT_TRUE(figures.accepted_after_delete);
  EXPECT_TRUE(server_->sessions.empty());
  EXPECT_EQ(server_->most_at_once, kCallsAtOnce);
  // 51 rounds of 256 calls, 1 ms each, and those that were sent before the first refusal came. A turn takes a
  // call, a prompt token and a token: 3.01 ms.
  EXPECT_EQ(figures.create_ms.count, 13'000);
  EXPECT_DOUBLE_EQ(figures.create_ms.p99, 1);
  EXPECT_NEAR(figures.create_seconds, 0.052, 1e-9);
  EXPECT_EQ(figures.first_token_ms.count, 13'000);
  EXPECT_NEAR(figures.first_token_ms.p50, 3.01, 1e-9);
  EXPECT_EQ(figures.steps, 13'000);
  EXPECT_NEAR(figures.step_ms, figures.generate_seconds * 1e3 / 13'000, 1e-12);
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

TEST_F(Capacity, AnInterruptAtAnyTimeLeavesNoSession) {
  server_options_.slots = 1000;
  for (int i = 0; i <= 20; ++i) {
    const CapacityFigures& figures = Run([&](SimulatedServer*) {
      loop_.At(loop_.Now() + i * absl::Milliseconds(1), [this] { phase_->Interrupt(); });
    });
    EXPECT_EQ(figures.failure, "interrupted") << i;
    EXPECT_TRUE(server_->sessions.empty()) << i;
  }
}

TEST_F(Capacity, AServerThatIsLostEndsItWithTheReason) {
  for (int i = 0; i < 30; i += 3) {
    const CapacityFigures& figures = Run([&](SimulatedServer* server) {
      loop_.At(loop_.Now() + i * absl::Milliseconds(1), [server] { server->lost = true; });
    });
    EXPECT_NE(figures.failure, "") << i;
  }
}

}  // namespace
}  // namespace weir
