// The library against a scripted server.
#include "client/client.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "client/connect.h"
#include "client/rpc_error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "tests/client/scripted_server.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

WeirClient ConnectTo(const ScriptedServer& server, absl::Duration call_timeout = absl::InfiniteDuration()) {
  ConnectOptions options;
  options.timeout = absl::Seconds(60);
  options.call_timeout = call_timeout;
  absl::StatusOr<WeirClient> client = WeirClient::Connect(server.address(), options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

v1::GenerateRequest Request(const std::string& session = "") {
  v1::GenerateRequest request;
  request.set_session(session);
  request.mutable_prompt()->set_text("p");
  return request;
}

// Sends `events` and ends well.
ScriptedServer::OnGenerate Events(std::vector<v1::GenerateResponse> events) {
  return [events = std::move(events)](grpc::ServerContext*, ScriptedServer::Writer* writer) {
    for (const v1::GenerateResponse& event : events) writer->Write(event);
    return grpc::Status::OK;
  };
}

// Streams one token after the other until the call is cancelled.
ScriptedServer::OnGenerate Endless(std::atomic<bool>* cancelled) {
  return [cancelled](grpc::ServerContext* context, ScriptedServer::Writer* writer) {
    writer->Write(PromptInfoEvent(0, 1));
    for (int64_t position = 1; !context->IsCancelled(); ++position) {
      writer->Write(DeltaEvent(position, "x", {7}));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cancelled->store(true);
    return grpc::Status::CANCELLED;
  };
}

absl::Status GenerateStatus(const WeirClient& client) {
  return client.Generate(Request(), [](const v1::Delta&) {}).status();
}

TEST(ClientGenerate, DeltasArriveInOrderAndTheResultHasBothEnds) {
  ScriptedServer server;
  server.on_generate =
      Events({PromptInfoEvent(10, 3), DeltaEvent(13, "He", {1}), DeltaEvent(14, "llo", {2, 3}),
              DeltaEvent(16, "", {4}), DeltaEvent(17, "é", {}), FinishEvent(4, 17)});
  const WeirClient client = ConnectTo(server);
  std::string text;
  std::vector<int64_t> positions;
  const auto result = client.Generate(Request("sessions/s1"), [&](const v1::Delta& delta) {
    text += delta.text();
    positions.push_back(delta.position());
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(text, "Helloé");
  EXPECT_THAT(positions, ElementsAre(13, 14, 16, 17));
  EXPECT_EQ(result->prompt_info.reused_tokens(), 10);
  EXPECT_EQ(result->finish.usage().generated_tokens(), 4);
  EXPECT_GT(result->time_to_first_token, absl::ZeroDuration());
  EXPECT_LE(result->time_to_first_token, result->elapsed);
}

TEST(ClientGenerate, TimeToFirstTokenStaysInfiniteWithoutTokens) {
  ScriptedServer server;
  server.on_generate = Events({PromptInfoEvent(0, 3), FinishEvent(0, 3)});
  const auto result = ConnectTo(server).Generate(Request(), [](const v1::Delta&) {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->time_to_first_token, absl::InfiniteDuration());
}

TEST(ClientGenerate, AGapBetweenDeltasIsDataLossWithBothPositions) {
  ScriptedServer server;
  server.on_generate =
      Events({PromptInfoEvent(0, 3), DeltaEvent(3, "a", {1, 2}), DeltaEvent(6, "b", {3}), FinishEvent(3, 7)});
  const WeirClient client = ConnectTo(server);
  std::string text;
  const auto result = client.Generate(Request(), [&](const v1::Delta& delta) { text += delta.text(); });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(text, "a") << "nothing behind the gap is handed over";
  const ErrorDetails details = GetErrorDetails(result.status());
  EXPECT_EQ(details.reason, kStreamGap);
  EXPECT_THAT(details.metadata, ElementsAre(Pair("expected", "5"), Pair("received", "6")));
}

TEST(ClientGenerate, StreamsThatBreakTheContractAreDataLoss) {
  const std::vector<std::pair<std::string, std::vector<v1::GenerateResponse>>> cases = {
      {"a first delta behind the prompt's end",
       {PromptInfoEvent(2, 3), DeltaEvent(6, "a", {1}), FinishEvent(1, 7)}},
      {"a delta that repeats",
       {PromptInfoEvent(0, 3), DeltaEvent(3, "a", {1}), DeltaEvent(3, "a", {1}), FinishEvent(2, 5)}},
      {"a last delta that is missing", {PromptInfoEvent(0, 3), DeltaEvent(3, "a", {1}), FinishEvent(2, 5)}},
      {"no finish", {PromptInfoEvent(0, 3), DeltaEvent(3, "a", {1})}},
      {"no prompt_info", {DeltaEvent(0, "a", {1}), FinishEvent(1, 1)}},
      {"two prompt_infos", {PromptInfoEvent(0, 3), PromptInfoEvent(0, 3), FinishEvent(0, 3)}},
      {"a delta after finish", {PromptInfoEvent(0, 3), FinishEvent(0, 3), DeltaEvent(3, "a", {1})}},
      {"nothing at all", {}}};
  ScriptedServer server;
  const WeirClient client = ConnectTo(server);
  for (const auto& [name, events] : cases) {
    server.on_generate = Events(events);
    EXPECT_EQ(GenerateStatus(client).code(), absl::StatusCode::kDataLoss) << name;
  }
}

TEST(ClientErrors, ReasonMetadataAndRetryAdviceReachTheCaller) {
  ScriptedServer server;
  server.on_generate = [](grpc::ServerContext*, ScriptedServer::Writer*) {
    return RichStatus(grpc::StatusCode::RESOURCE_EXHAUSTED, "SESSION_CAPACITY_EXHAUSTED",
                      "no slot of 4096 bytes is free", {{"state_bytes", "4096"}, {"capacity", "8"}}, 2);
  };
  const absl::Status status = GenerateStatus(ConnectTo(server));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "no slot of 4096 bytes is free");
  const ErrorDetails details = GetErrorDetails(status);
  EXPECT_EQ(details.reason, "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_THAT(details.metadata,
              ::testing::UnorderedElementsAre(Pair("state_bytes", "4096"), Pair("capacity", "8")));
  EXPECT_EQ(details.retry_after, absl::Seconds(2));
}

TEST(ClientErrors, FieldViolationsAreKeptBesideTheReason) {
  google::rpc::Status rpc;
  google::rpc::ErrorInfo info;
  info.set_reason("INVALID_FIELDS");
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("sampling.top_p");
  bad.mutable_field_violations(0)->set_description("must be in (0, 1]");
  rpc.add_details()->PackFrom(info);
  rpc.add_details()->PackFrom(bad);
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad", rpc.SerializeAsString()), "here");
  EXPECT_EQ(GetErrorDetails(status).reason, "INVALID_FIELDS");
  EXPECT_THAT(GetErrorDetails(status).metadata,
              ElementsAre(Pair("field sampling.top_p", "must be in (0, 1]")));
}

TEST(ClientErrors, DrainingIsTheServersWordAndABrokenSocketIsNot) {
  EXPECT_EQ(
      GetErrorDetails(FromGrpc(RichStatus(grpc::StatusCode::UNAVAILABLE, "DRAINING", "bye"), "here")).reason,
      "DRAINING");
  const absl::Status lost = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"), "here:1");
  EXPECT_EQ(GetErrorDetails(lost).reason, kConnectionLost);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("here:1"));
  EXPECT_FALSE(FromGrpc(grpc::Status(grpc::StatusCode::UNKNOWN, ""), "here").message().empty());
  EXPECT_TRUE(FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "m", "no proto \xff"), "here").message() ==
              "m");
}

// The words are gRPC's, as real proxies made it say them; tests/e2e/replicas has the proxies.
TEST(ClientErrors, WhatAProxyMakesOfALostServerIsALostConnection) {
  for (const grpc::Status& status :
       {grpc::Status(grpc::StatusCode::INTERNAL, "Received RST_STREAM with error code 2"),
        grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed"),
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "Received http2 header with status: 503")}) {
    const absl::Status lost = FromGrpc(status, "here:1");
    EXPECT_EQ(GetErrorDetails(lost).reason, kConnectionLost) << lost;
    EXPECT_THAT(std::string(lost.message()),
                ::testing::AllOf(HasSubstr("here:1"), HasSubstr("proxy"), HasSubstr(status.error_message()),
                                 HasSubstr("try again")));
  }
  // A server's own words stay.
  EXPECT_EQ(FromGrpc(RichStatus(grpc::StatusCode::INTERNAL, "DEVICE_LOST", "RST_STREAM"), "here:1").message(),
            "RST_STREAM");
}

TEST(ClientErrors, AMessageOverTheLimitIsNotALackOfCapacity) {
  ScriptedServer server;  // with gRPC's own limit of 4 MiB
  const auto client = WeirClient::Connect(server.address());
  ASSERT_TRUE(client.ok()) << client.status();
  v1::TokenizeRequest request;
  request.set_text(std::string(5 << 20, 'x'));
  const absl::Status status = client->Tokenize(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetErrorDetails(status).reason, kMessageTooLarge);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("4194304"), HasSubstr("in parts"), HasSubstr("--max-message-size")));
  EXPECT_EQ(server.calls(), 0);
}

TEST(ClientCancel, AnotherThreadEndsARunningTurn) {
  std::atomic<bool> seen{false};
  ScriptedServer server;
  server.on_generate = Endless(&seen);
  const WeirClient client = ConnectTo(server);
  CancelToken cancel;
  std::atomic<int> deltas{0};
  std::thread other([&] {
    while (deltas.load() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cancel.Cancel();
  });
  const auto result = client.Generate(
      Request(), [&](const v1::Delta&) { ++deltas; }, &cancel);
  other.join();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  for (int i = 0; i < 30000 && !seen.load(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(seen.load()) << "the server is told";
}

TEST(ClientCancel, WorksInTheCallbackAndBeforeTheCall) {
  std::atomic<bool> seen{false};
  ScriptedServer server;
  server.on_generate = Endless(&seen);
  const WeirClient client = ConnectTo(server);
  CancelToken cancel;
  const auto result = client.Generate(
      Request(), [&](const v1::Delta&) { cancel.Cancel(); }, &cancel);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(cancel.cancelled());
  EXPECT_EQ(client.GetServerInfo(&cancel).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(client.GetServerInfo().ok()) << "the connection itself is fine";
}

TEST(ClientDeadline, EndsAStreamThatGoesOnForTooLong) {
  std::atomic<bool> seen{false};
  ScriptedServer server;
  server.on_generate = Endless(&seen);
  const absl::Status status = GenerateStatus(ConnectTo(server, absl::Milliseconds(200)));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(GetErrorDetails(status).reason, kDeadlinePassed);
}

// A socket on loopback that accepts connections and stays silent, or, closed, refuses them.
struct SilentPort {
  SilentPort() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    name = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~SilentPort() { close(fd); }
  int fd;
  std::string name;
};

TEST(ClientConnect, ARefusedConnectionIsReportedLongBeforeTheTimeout) {
  const SilentPort port;  // bound, but it does not listen
  const auto start = std::chrono::steady_clock::now();
  ConnectOptions options;
  options.timeout = absl::Minutes(5);
  const auto client = WeirClient::Connect(port.name, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorDetails(client.status()).reason, kUnreachable);
  EXPECT_THAT(
      std::string(client.status().message()),
      ::testing::AllOf(HasSubstr(port.name), HasSubstr("Connection refused"), HasSubstr("weir-server")));
}

TEST(ClientConnect, APeerThatNeverGreetsIsUnreachableAfterTheTimeout) {
  const SilentPort port;
  ASSERT_EQ(listen(port.fd, 4), 0);
  ConnectOptions options;
  options.timeout = absl::Milliseconds(300);
  const auto client = WeirClient::Connect(port.name, options);
  EXPECT_EQ(GetErrorDetails(client.status()).reason, kUnreachable);
  EXPECT_THAT(std::string(client.status().message()),
              ::testing::AllOf(HasSubstr("300ms"), HasSubstr("is busy or not a gRPC server"),
                               ::testing::Not(HasSubstr("weir-server"))));

  CancelToken cancel;
  cancel.Cancel();
  options.timeout = absl::Minutes(5);
  options.cancel = &cancel;
  EXPECT_EQ(WeirClient::Connect(port.name, options).status().code(), absl::StatusCode::kCancelled);
}

TEST(ClientConnect, AddressesWithoutAPortGetTheDefault) {
  EXPECT_EQ(*TargetOf("gpu1"), "gpu1:7070");
  EXPECT_EQ(*TargetOf("gpu1:80"), "gpu1:80");
  EXPECT_EQ(*TargetOf("[::1]"), "[::1]:7070");
  EXPECT_EQ(*TargetOf("[::1]:80"), "[::1]:80");
  EXPECT_EQ(*TargetOf("unix:/tmp/weir.sock"), "unix:/tmp/weir.sock");
}

TEST(ClientConnect, WhatIsNoAddressIsRefusedWithTheForm) {
  for (const char* text : {"", "127.0.0.1:99999", "127.0.0.1:0", "gpu1:abc", ":7070", "::1", "unix:"}) {
    const absl::Status status = WeirClient::Connect(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(GetErrorDetails(status).reason, kInvalidAddress);
    EXPECT_THAT(std::string(status.message()), HasSubstr("write HOST:PORT")) << text;
  }
}

TEST(ClientSessions, EveryCallNamesItsSessionForRouters) {
  ScriptedServer server;
  const WeirClient client = ConnectTo(server);
  v1::CreateSessionRequest create;
  create.set_session_id("mine");
  ASSERT_TRUE(client.CreateSession(create).ok());
  EXPECT_EQ(server.session_id(), "mine");

  ASSERT_TRUE(client.CreateSession(v1::CreateSessionRequest()).ok());
  const std::string random = server.Last<v1::CreateSessionRequest>().session_id();
  EXPECT_THAT(random, ::testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_EQ(server.session_id(), random);
  ASSERT_TRUE(client.CreateSession(v1::CreateSessionRequest()).ok());
  EXPECT_NE(server.session_id(), random);

  ASSERT_TRUE(client.Generate(Request("sessions/s1"), [](const v1::Delta&) {}).ok());
  EXPECT_EQ(server.session_id(), "s1");
  ASSERT_TRUE(client.Generate(Request(), [](const v1::Delta&) {}).ok());
  EXPECT_EQ(server.session_id(), "");

  v1::GetSessionRequest get;
  get.set_name("sessions/s2");
  ASSERT_TRUE(client.GetSession(get).ok());
  EXPECT_EQ(server.session_id(), "s2");
  v1::AppendSessionRequest append;
  append.set_name("sessions/s3");
  ASSERT_TRUE(client.AppendSession(append).ok());
  EXPECT_EQ(server.session_id(), "s3");
  v1::ForkSessionRequest fork;
  fork.set_name("sessions/s4");
  ASSERT_TRUE(client.ForkSession(fork).ok());
  EXPECT_EQ(server.session_id(), "s4");
  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/s5");
  ASSERT_TRUE(client.DeleteSession(remove).ok());
  EXPECT_EQ(server.session_id(), "s5");
}

TEST(ClientCalls, AnswersAndErrorsOfTheOtherCalls) {
  ScriptedServer server;
  server.answers = {{"weir.v1.Model", "name: 'models/m' vocab_size: 9"},
                    {"weir.v1.ListModelsResponse", "models { name: 'models/m' }"},
                    {"weir.v1.TokenizeResponse", "token_ids: [1, 2]"},
                    {"weir.v1.DetokenizeResponse", "raw: '\\xff'"},
                    {"weir.v1.ScoreResponse", "perplexity: 2.5"},
                    {"weir.v1.ServerInfo", "version: '9'"},
                    {"weir.v1.ListSessionsResponse", "sessions { name: 'sessions/s' }"}};
  const WeirClient client = ConnectTo(server);
  EXPECT_EQ(client.GetModel({})->vocab_size(), 9);
  EXPECT_EQ(client.ListModels({})->models(0).name(), "models/m");
  EXPECT_EQ(client.Tokenize({})->token_ids_size(), 2);
  EXPECT_EQ(client.Detokenize({})->raw(), "\xff");
  EXPECT_EQ(client.Score({})->perplexity(), 2.5);
  EXPECT_EQ(client.GetServerInfo()->version(), "9");
  EXPECT_EQ(client.ListSessions({})->sessions(0).name(), "sessions/s");

  server.status = RichStatus(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "no such model");
  EXPECT_EQ(GetErrorDetails(client.GetModel({}).status()).reason, "MODEL_NOT_FOUND");
  EXPECT_EQ(client.DeleteSession({}).code(), absl::StatusCode::kNotFound);
}

TEST(ClientCalls, HealthIsServingOnlyWhenTheServerSaysSo) {
  ScriptedServer server;
  const WeirClient client = ConnectTo(server);
  EXPECT_EQ(*client.CheckHealth(), Health::kServing);
  server.health = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  EXPECT_EQ(*client.CheckHealth(), Health::kNotServing);
  server.health = grpc::health::v1::HealthCheckResponse::SERVICE_UNKNOWN;
  EXPECT_EQ(*client.CheckHealth(), Health::kUnknown);
}

}  // namespace
}  // namespace weir
