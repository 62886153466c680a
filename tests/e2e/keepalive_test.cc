// RPC-07: pings of a client, as often as the server allows and more often.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "client/rpc_error.h"
#include "tests/support/notification.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

// A client that pings without end, also while nothing is on the way; gRPC's own would stop after two.
grpc::ChannelArguments PingEvery(absl::Duration interval) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(absl::ToInt64Milliseconds(interval)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return arguments;
}

// A server whose second step takes until `released_`: every stream is quiet so long.
class Keepalive : public ::testing::Test {
 protected:
  void Start(absl::Duration min_ping_interval) {
    std::shared_ptr<FakeModel> fake;
    std::vector<ServedModel> models;
    models.push_back(MakeServedFake("fake", {}, {.slots = 4}, &fake));
    fake->on_step = [this](const StepInput&, const StepState&) {
      if (++steps_ == 2) released_.Wait();
    };
    FixtureOptions options;
    options.server.min_ping_interval = min_ping_interval;
    fixture_ = std::make_unique<ServerFixture>(std::move(models), options);
  }
  void TearDown() override { released_.Notify(); }

  // Before the server, whose threads use them.
  std::atomic<int> steps_{0};
  Notification released_;
  std::unique_ptr<ServerFixture> fixture_;
};

// Each ping is sent an interval after the answer to the one before, so that a slow machine only spreads them.
TEST_F(Keepalive, RPC_07_PingsAtTheDocumentedMinimumLeaveAQuietStreamAlone) {
  constexpr absl::Duration kMinimum = absl::Milliseconds(300);
  Start(kMinimum);
  const auto stub = v1::Generation::NewStub(fixture_->NewChannel(PingEvery(kMinimum)));
  Answer answer;
  std::thread client([&] { answer = Generate(*stub, GreedyRequest({1, 2, 3}, 20)); });
  EXPECT_TRUE(WaitFor([&] { return steps_.load() == 2; }));
  absl::SleepFor(10 * kMinimum);  // three strikes would be enough
  EXPECT_EQ(fixture_->server().live_streams(), 1);
  released_.Notify();
  client.join();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.what_is_wrong, "");
  EXPECT_EQ(answer.token_ids.size(), 20u);
}

TEST_F(Keepalive, RPC_07_FasterPingsAreSentAwayAndNobodyElseIs) {
  Start(absl::Seconds(10));  // the default
  const auto stub = v1::Generation::NewStub(fixture_->NewChannel(PingEvery(absl::Milliseconds(100))));
  Answer fast, quiet;
  std::thread other([&] { quiet = Generate(fixture_->generation(), GreedyRequest({1, 2, 3}, 20)); });
  EXPECT_TRUE(WaitFor([&] { return steps_.load() == 2; }));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
  fast = Generate(*stub, GreedyRequest({1, 2, 3}, 20), &context);
  EXPECT_EQ(fast.status.error_code(), grpc::StatusCode::UNAVAILABLE) << fast.status.error_message();
  EXPECT_THAT(std::string(FromGrpc(fast.status, "the-server").message()),
              HasSubstr("the server at the-server closed the connection, as this client pings it too often: "
                        "set keepalive to 10s or more, or what the server has as --min-ping-interval"));
  // The other stream stood still all the while, and so did its connection.
  released_.Notify();
  other.join();
  EXPECT_TRUE(quiet.status.ok()) << quiet.status.error_message();
  EXPECT_EQ(quiet.token_ids.size(), 20u);
  EXPECT_TRUE(WaitFor([&] { return fixture_->engine().Stats()[0].slots_free == 4; }));
}

}  // namespace
}  // namespace weir::testing
