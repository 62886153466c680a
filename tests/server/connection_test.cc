// Limits of one connection: calls at once, metadata, idleness and age.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::FixtureOptions;
using testing::Generate;
using testing::GreedyRequest;
using testing::ServerFixture;
using testing::WaitFor;

// A model that takes its time, so that endless streams do not take the machine.
std::vector<testing::ServedModel> SlowModel() {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", {.step_time = absl::Milliseconds(1)}));
  return models;
}

TEST(Connection, CallsBeyondMaxStreamsWaitAtTheClient) {
  FixtureOptions options;
  options.server.max_streams = 1;
  ServerFixture fixture(SlowModel(), options);
  const auto channel = fixture.NewChannel();
  auto stub = v1::Generation::NewStub(channel);
  grpc::ClientContext endless;
  auto stream = stub->Generate(&endless, GreedyRequest({1}, 1'000'000'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(stream->Read(&message));
  grpc::ClientContext waiting;
  waiting.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
  EXPECT_EQ(Generate(*stub, GreedyRequest({1}, 1), &waiting).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  // Another connection has a limit of its own.
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok());
  endless.TryCancel();
  stream->Finish();
  EXPECT_TRUE(Generate(*stub, GreedyRequest({1}, 1)).status.ok());
}

TEST(Connection, MetadataOverTheLimitIsRefused) {
  FixtureOptions options;
  options.server.max_metadata_bytes = 4096;
  ServerFixture fixture(options);
  grpc::ClientContext large;
  large.AddMetadata("x-large", std::string(8192, 'x'));
  EXPECT_EQ(Generate(fixture.generation(), GreedyRequest({1}, 1), &large).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // gRPC may end that connection, and a call on it that was faster.
  EXPECT_TRUE(
      testing::WaitFor([&] { return Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok(); }));
}

TEST(Connection, AnIdleOneEndsAndTheNextCallOpensAnother) {
  FixtureOptions options;
  // Long enough for a call to come before its own connection has been idle for so long, on a busy machine
  // too.
  options.server.max_connection_idle = absl::Seconds(1);
  ServerFixture fixture(options);
  const auto channel = fixture.NewChannel();
  auto stub = v1::Generation::NewStub(channel);
  ASSERT_TRUE(Generate(*stub, GreedyRequest({1}, 1)).status.ok());
  EXPECT_TRUE(WaitFor([&] { return channel->GetState(false) != GRPC_CHANNEL_READY; }));
  const grpc::Status next = Generate(*stub, GreedyRequest({1}, 1)).status;
  EXPECT_TRUE(next.ok()) << next.error_message();
}

TEST(Connection, AnOldOneTakesNoNewCallsAndFinishesTheOthers) {
  FixtureOptions options;
  options.server.max_connection_age = absl::Milliseconds(50);
  ServerFixture fixture(SlowModel(), options);
  const auto channel = fixture.NewChannel();
  auto stub = v1::Generation::NewStub(channel);
  grpc::ClientContext context;
  auto stream = stub->Generate(&context, GreedyRequest({1}, 1'000'000'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(stream->Read(&message));
  ASSERT_TRUE(WaitFor([&] { return channel->GetState(false) != GRPC_CHANNEL_READY; }));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(stream->Read(&message));
  EXPECT_TRUE(Generate(*stub, GreedyRequest({1}, 1)).status.ok());
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(Connection, TheGraceEndsTheCallsOfAnOldOne) {
  FixtureOptions options;
  options.server.max_connection_age = absl::Milliseconds(50);
  options.server.max_connection_age_grace = absl::Milliseconds(50);
  ServerFixture fixture(SlowModel(), options);
  const auto answer = Generate(fixture.generation(), GreedyRequest({1}, 1'000'000'000));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE) << answer.status.error_message();
  EXPECT_TRUE(WaitFor([&] { return fixture.server().live_streams() == 0; }));
}

}  // namespace
}  // namespace weir
