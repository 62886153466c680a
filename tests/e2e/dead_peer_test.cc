// A client that is cut off without a word: no reset, no end, only silence.
#include <gtest/gtest.h>

#include <thread>

#include "grpcpp/create_channel.h"
#include "tests/support/server_fixture.h"
#include "tests/support/tcp_proxy.h"

namespace weir::testing {
namespace {

// Neither the stall limit nor a stuck write may be what ends it: both are set to an hour.
TEST(DeadPeer, RPC_03_KeepaliveEndsTheGenerationAndFreesItsSlot) {
  std::shared_ptr<FakeModel> fake;
  std::vector<ServedModel> models;
  models.push_back(MakeServedFake("fake", {}, {.slots = 2}, &fake));
  // Few tokens, so that all of them fit the socket's buffers: writing alone notices nothing.
  fake->on_step = [](const StepInput&, const StepState&) { absl::SleepFor(absl::Milliseconds(5)); };
  FixtureOptions options;
  options.server.keepalive_time = absl::Milliseconds(500);
  options.server.keepalive_timeout = absl::Milliseconds(500);
  options.server.stuck_write = absl::Hours(1);
  options.engine.reader_stall = absl::Hours(1);
  ServerFixture fixture(std::move(models), options);
  TcpProxy proxy(fixture.server().port());

  const auto stub =
      v1::Generation::NewStub(grpc::CreateChannel(proxy.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const v1::GenerateRequest request = GreedyRequest({1}, 1'000'000);
  auto reader = stub->Generate(&context, request);
  v1::GenerateResponse message;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(reader->Read(&message));
  ASSERT_EQ(fixture.server().live_streams(), 1);

  proxy.Freeze();
  EXPECT_TRUE(WaitFor([&] { return fixture.server().live_streams() == 0; }));
  EXPECT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].slots_free == 2; }));
  // Others never noticed.
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 3)).status.ok());

  context.TryCancel();
  while (reader->Read(&message)) {
  }
  reader->Finish();
}

}  // namespace
}  // namespace weir::testing
