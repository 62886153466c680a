// The server as an operator meets it: loading, health, reflection, ports, draining, and calls that do not
// wait.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/failing_device.h"
#include "tests/support/notification.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::FakeModel;
using testing::FixtureOptions;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::RawCall;
using testing::ServerFixture;
using testing::WaitFor;
using Health = grpc::health::v1::Health;
using grpc::health::v1::HealthCheckResponse;

constexpr const char* kServices[] = {"", "weir.v1.Generation", "weir.v1.Models", "weir.v1.Sessions",
                                     "weir.v1.Server"};

int HealthOf(Health::Stub& stub, const std::string& service) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  return stub.Check(&context, request, &response).ok() ? static_cast<int>(response.status()) : -1;
}

TEST(Server, DEP_01_UnavailableAndNotServingUntilTheModelsAreLoaded) {
  FixtureOptions options;
  options.serve = false;
  ServerFixture fixture(options);
  auto health = Health::NewStub(fixture.NewChannel());
  for (const char* service : kServices)
    EXPECT_EQ(HealthOf(*health, service), HealthCheckResponse::NOT_SERVING) << service;
  const Answer early = Generate(fixture.generation(), GreedyRequest({1}, 1));
  EXPECT_EQ(early.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(testing::ReasonOf(early.status), "LOADING");
  EXPECT_TRUE(testing::DetailOf<google::rpc::RetryInfo>(early.status).has_value());
  grpc::ClientContext contexts[4];
  v1::ListModelsResponse models;
  EXPECT_EQ(fixture.models().ListModels(&contexts[0], {}, &models).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  v1::TokenizeResponse tokens;
  EXPECT_EQ(fixture.models().Tokenize(&contexts[1], {}, &tokens).error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::AppendSessionResponse appended;
  EXPECT_EQ(fixture.sessions().AppendSession(&contexts[2], {}, &appended).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  v1::ServerInfo info;
  EXPECT_EQ(fixture.info().GetServerInfo(&contexts[3], {}, &info).error_code(),
            grpc::StatusCode::UNAVAILABLE);

  fixture.Serve();
  for (const char* service : kServices) EXPECT_EQ(HealthOf(*health, service), HealthCheckResponse::SERVING);
  EXPECT_EQ(HealthOf(*health, "weir.v1.Nothing"), -1);
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok());
}

TEST(Server, ASecondServerOnThePortIsRefused) {
  ServerFixture fixture;
  ServerOptions options;
  options.listen = fixture.address();
  auto second = WeirServer::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(fixture.address()));
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok());
}

TEST(Server, ReflectionListsTheServicesUnlessItIsOff) {
  for (const std::string version : {"v1", "v1alpha"}) {
    const std::string method = "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo";
    const std::string list_services = {0x3a, 0x01, '*'};  // ServerReflectionRequest.list_services
    {
      ServerFixture fixture;
      std::string response;
      ASSERT_TRUE(RawCall(fixture.NewChannel(), method, list_services, &response).ok());
      for (const char* service : kServices) EXPECT_THAT(response, HasSubstr(service));
      // And describes them.
      std::string symbol = "weir.v1.Generation", file;
      symbol = std::string{0x22, static_cast<char>(symbol.size())} + symbol;  // file_containing_symbol
      ASSERT_TRUE(RawCall(fixture.NewChannel(), method, symbol, &file).ok());
      EXPECT_THAT(file, HasSubstr("GenerateRequest"));
    }
    FixtureOptions options;
    options.server.reflection = false;
    ServerFixture fixture(options);
    std::string response;
    EXPECT_EQ(RawCall(fixture.NewChannel(), method, list_services, &response).error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST(Server, BytesThatAreNoRequestEndTheCallAndNothingElse) {
  ServerFixture fixture;
  // Field 2 (session) as a string that is not UTF-8, and a truncated message.
  for (const std::string& bytes : {std::string("\x12\x03\xff\xc3\x28", 5), std::string("\x12\x7f", 2)}) {
    std::string response;
    const grpc::Status status =
        RawCall(fixture.NewChannel(), "/weir.v1.Generation/Generate", bytes, &response);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(response, "");
    EXPECT_LT(status.error_message().size(), 1024u);
  }
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok());
  EXPECT_TRUE(WaitFor([&] { return fixture.server().live_streams() == 0; }));
}

TEST(Server, MessagesOverTheLimitAreRefused) {
  FixtureOptions options;
  options.server.max_message_bytes = 1 << 20;
  ServerFixture fixture(options);
  v1::GenerateRequest request = GreedyRequest({1}, 1);
  request.mutable_prompt()->set_text(std::string(2 << 20, 'x'));
  const Answer answer = Generate(fixture.generation(), request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("1048576"));
}

TEST(Server, DEP_04_DrainingFinishesWhatRunsAndRefusesTheRest) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", {.step_time = absl::Milliseconds(1)}));
  ServerFixture fixture(std::move(models));
  auto health = Health::NewStub(fixture.NewChannel());
  std::vector<std::thread> threads;
  std::vector<Answer> answers(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] { answers[i] = Generate(fixture.generation(), GreedyRequest({i}, 300)); });
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].running == 8; }));
  fixture.server().Drain();
  EXPECT_EQ(HealthOf(*health, ""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(HealthOf(*health, "weir.v1.Generation"), HealthCheckResponse::NOT_SERVING);
  const Answer late = Generate(fixture.generation(), GreedyRequest({1}, 1));
  EXPECT_EQ(late.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(testing::DetailOf<google::rpc::RetryInfo>(late.status).has_value());
  EXPECT_FALSE(fixture.server().Idle());
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].token_ids, FakeModel::Generate({i}, 300, testing::kByteVocab));
  }
  EXPECT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
}

// As main does it: told once, the server drains, and is idle when the last status is out.
TEST(Server, ALostDeviceIsToldToEveryStreamAndTheServerEnds) {
  const auto device = std::make_shared<testing::FailingDevice>();
  testing::Notification lost;
  FixtureOptions options;
  options.device = device;
  options.engine.on_device_lost = [&](const absl::Status&) { lost.Notify(); };
  ServerFixture fixture(std::move(options));
  auto health = Health::NewStub(fixture.NewChannel());
  std::vector<std::thread> threads;
  std::vector<Answer> answers(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(
        [&, i] { answers[i] = Generate(fixture.generation(), GreedyRequest({i}, 1'000'000)); });
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].running == 8; }));
  device->FailAt(1);
  lost.Wait();
  fixture.server().Drain();
  EXPECT_EQ(HealthOf(*health, ""), HealthCheckResponse::NOT_SERVING);
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INTERNAL) << answer.status.error_message();
    const auto info = testing::DetailOf<google::rpc::ErrorInfo>(answer.status);
    ASSERT_TRUE(info.has_value());
    EXPECT_EQ(info->reason(), "DEVICE_LOST");
    EXPECT_EQ(info->metadata().at("device"), "fail:0");
  }
  EXPECT_EQ(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
}

TEST(Server, RPC_09_ShutdownEndsInTimeWithOpenStreamsAndTellsThem) {
  ServerFixture fixture;
  auto health = Health::NewStub(fixture.NewChannel());
  grpc::ClientContext watch_context;
  auto watch = health->Watch(&watch_context, {});
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));
  Answer endless;
  std::thread reader([&] { endless = Generate(fixture.generation(), GreedyRequest({1}, 1'000'000'000)); });
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].generated_tokens > 100; }));
  const absl::Time begin = absl::Now();
  fixture.server().Shutdown(absl::Now() + absl::Seconds(5));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(3));
  reader.join();
  EXPECT_EQ(endless.status.error_code(), grpc::StatusCode::UNAVAILABLE) << endless.status.error_message();
  EXPECT_EQ(endless.what_is_wrong, "");
  while (watch->Read(&seen)) {
  }
  EXPECT_FALSE(watch->Finish().ok());
}

TEST(Server, RPC_06_HealthAnswersWhileStreamsAreQuiet) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", {.step_time = absl::Milliseconds(200)}));
  ServerFixture fixture(std::move(models));
  std::vector<std::thread> streams;
  std::vector<grpc::ClientContext> contexts(64);
  for (int i = 0; i < 64; ++i)
    streams.emplace_back([&, i] {
      Generate(fixture.generation(), GreedyRequest({i}, 1'000'000), &contexts[static_cast<size_t>(i)]);
    });
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].running == 64; }));
  auto health = Health::NewStub(fixture.NewChannel());
  HealthOf(*health, "");  // connects
  std::vector<absl::Duration> times;
  for (int i = 0; i < 30; ++i) {
    const absl::Time begin = absl::Now();
    ASSERT_EQ(HealthOf(*health, ""), HealthCheckResponse::SERVING);
    times.push_back(absl::Now() - begin);
    absl::SleepFor(absl::Milliseconds(30));
  }
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (std::thread& stream : streams) stream.join();
  // A call that waited for a step would take 100 ms on the average; the median leaves room for a busy
  // machine.
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  EXPECT_LT(times[times.size() / 2], absl::Milliseconds(50));
}

}  // namespace
}  // namespace weir
