// The load test's loop and transport on real gRPC, against a server in this process.
#include "client/loadtest/grpc_transport.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/loadtest/run.h"
#include "client/rpc_error.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/base/mutex.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::FakeModelOptions;
using testing::MakeServedFake;
using testing::ServerFixture;

v1::ServerInfo InfoOf(ServerFixture* server) {
  grpc::ClientContext context;
  v1::ServerInfo info;
  EXPECT_TRUE(server->info().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  return info;
}

// Of a model by its id.
v1::ModelUse UseOf(ServerFixture* server, const std::string& name) {
  const v1::ServerInfo info = InfoOf(server);
  for (const v1::ModelUse& use : info.models())
    if (use.model().name() == "models/" + name) return use;
  ADD_FAILURE() << "no model " << name;
  return {};
}

std::unique_ptr<Transport> TransportTo(const ServerFixture& server, Loop* loop, int connections = 2) {
  auto transport = ConnectGrpcTransport(
      {.address = server.address(), .tls = {}, .api_key = "", .connections = connections}, loop, nullptr);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

// The events of one turn; stops the loop at the end.
class Recorder final : public TurnObserver {
 public:
  explicit Recorder(Loop* loop) : loop_(loop) {}
  void OnPromptInfo(absl::Duration at, int64_t prompt, int64_t reused) override {
    Seen(at);
    prompt_tokens = prompt;
    reused_tokens = reused;
  }
  void OnDelta(absl::Duration at, int64_t num_tokens, bool has_text) override {
    Seen(at);
    tokens += num_tokens;
    text |= has_text;
    if (on_token) on_token();
  }
  void OnEnd(absl::Duration at, const TurnResult& turn_end) override {
    Seen(at);
    end = turn_end;
    ++ends;
    loop_->Stop();
  }

  std::function<void()> on_token;
  int64_t prompt_tokens = -1, reused_tokens = -1, tokens = 0;
  bool text = false;
  int ends = 0;
  TurnResult end;

 private:
  void Seen(absl::Duration at) {
    EXPECT_GE(at, last_);
    EXPECT_LE(at, loop_->Now());
    last_ = at;
  }
  Loop* const loop_;
  absl::Duration last_;
};

TEST(RealLoop, RunsTasksInOrderOfTimeAndPostsFromOtherThreads) {
  RealLoop loop;
  std::vector<int> order;
  loop.At(loop.Now() + absl::Milliseconds(20), [&] {
    order.push_back(3);
    loop.Stop();
  });
  loop.At(absl::ZeroDuration(), [&] { order.push_back(1); });
  loop.At(absl::ZeroDuration(), [&] { order.push_back(2); });
  loop.Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  // A loop that waits without a timer is woken; what is left at Stop() runs the next time.
  int posted = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) loop.Post([&] { ++posted; });
    loop.Post([&] { loop.Stop(); });
    loop.Post([&] { posted += 10'000; });
    loop.Post([&] { loop.Stop(); });
  });
  loop.Run();
  EXPECT_EQ(posted, 1000);
  other.join();
  loop.Run();
  EXPECT_EQ(posted, 11'000);
}

TEST(GrpcTransport, BringsEveryEventOfATurnAndOfASession) {
  ServerFixture server;
  RealLoop loop;
  const std::unique_ptr<Transport> transport = TransportTo(server, &loop);
  std::vector<std::string> order;
  const auto done = [&](const std::string& what, int64_t position) {
    return [&order, &loop, what, position](absl::Duration, const absl::StatusOr<SessionFacts>& session) {
      EXPECT_TRUE(session.ok()) << session.status();
      if (session.ok()) {
        EXPECT_EQ(session->id, "s1");
        EXPECT_EQ(session->position, position);
        EXPECT_EQ(session->state_bytes > 0, true);
        EXPECT_FALSE(session->busy);
      }
      order.push_back(what);
      loop.Stop();
    };
  };
  transport->CreateSession("fake", "s1", absl::InfiniteDuration(), done("create", 0));
  EXPECT_TRUE(order.empty());  // nothing happens within the call
  loop.Run();
  transport->AppendSession("s1", {.text = "", .token_ids = {1, 2, 3}}, absl::Seconds(60), done("append", 3));
  loop.Run();
  Recorder turn(&loop);
  transport->StartTurn(
      {.model = "fake", .session = "s1", .prompt = {.text = "", .token_ids = {4, 5}}, .max_tokens = 40},
      &turn);
  loop.Run();
  EXPECT_TRUE(turn.end.status.ok()) << turn.end.status;
  EXPECT_EQ(turn.prompt_tokens, 2);
  EXPECT_EQ(turn.reused_tokens, 3);
  EXPECT_EQ(turn.tokens, 40);
  EXPECT_TRUE(turn.text);
  EXPECT_EQ(turn.end.generated_tokens, 40);
  EXPECT_EQ(turn.end.position, 45);
  transport->GetSession("s1", absl::InfiniteDuration(), done("get", 45));
  loop.Run();
  for (const bool there : {true, false}) {
    transport->DeleteSession("s1", absl::InfiniteDuration(), [&](absl::Duration, const absl::Status& status) {
      EXPECT_EQ(status.code(), there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
      if (!there) EXPECT_EQ(GetErrorDetails(status).reason, "SESSION_NOT_FOUND");
      loop.Stop();
    });
    loop.Run();
  }
  EXPECT_THAT(order, ::testing::ElementsAre("create", "append", "get"));
  EXPECT_EQ(AskServer(&loop, transport.get())->models(0).model().name(), "models/fake");
}

TEST(GrpcTransport, CancelsLimitsAndRefusesWithReasons) {
  FakeModelOptions slow;
  slow.step_time = absl::Milliseconds(2);
  ServerFixture server({MakeServedFake("fake", slow)});
  RealLoop loop;
  std::unique_ptr<Transport> transport = TransportTo(server, &loop);
  const TurnRequest endless = {
      .model = "fake", .session = "", .prompt = {.text = "", .token_ids = {1}}, .max_tokens = 1'000'000'000};

  Recorder cancelled(&loop);
  const std::unique_ptr<RunningTurn> handle = transport->StartTurn(endless, &cancelled);
  cancelled.on_token = [&] { handle->Cancel(); };
  loop.Run();
  EXPECT_EQ(cancelled.end.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cancelled.ends, 1);
  handle->Cancel();  // without effect

  Recorder late(&loop);
  TurnRequest limited = endless;
  limited.timeout = absl::Milliseconds(200);
  transport->StartTurn(limited, &late);
  loop.Run();
  EXPECT_EQ(late.end.status.code(), absl::StatusCode::kDeadlineExceeded);
  // Server and client look at the same clock; either may see it first.
  EXPECT_THAT(GetErrorDetails(late.end.status).reason,
              ::testing::AnyOf(kDeadlinePassed, "DEADLINE_EXCEEDED"));

  Recorder refused(&loop);
  TurnRequest wrong = endless;
  wrong.model = "nope";
  transport->StartTurn(wrong, &refused);
  loop.Run();
  EXPECT_EQ(GetErrorDetails(refused.end.status).reason, "MODEL_NOT_FOUND");

  Recorder no_text(&loop);
  wrong.model = "\xff";
  transport->StartTurn(wrong, &no_text);
  EXPECT_EQ(no_text.ends, 0);
  loop.Run();
  EXPECT_EQ(GetErrorDetails(no_text.end.status).reason, kInvalidText);

  // A transport that goes takes its calls with it, and calls nobody any more.
  Recorder abandoned(&loop);
  transport->StartTurn(endless, &abandoned);
  transport.reset();
  loop.Post([&] { loop.Stop(); });
  loop.Run();
  EXPECT_EQ(abandoned.ends, 0);
  EXPECT_TRUE(testing::WaitFor([&] { return UseOf(&server, "fake").requests_running() == 0; }));
}

// Ends its calls when `wanted` of them are there at the same time.
class GatheringService final : public v1::Generation::CallbackService {
 public:
  explicit GatheringService(size_t wanted) : wanted_(wanted) {}
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* /*context*/,
                                                           const v1::GenerateRequest* /*request*/) override {
    class Reactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
      void OnDone() override { delete this; }
    };
    auto* const reactor = new Reactor;
    std::vector<grpc::ServerWriteReactor<v1::GenerateResponse>*> gathered;
    {
      const MutexLock lock(&mu_);
      calls_.push_back(reactor);
      if (calls_.size() == wanted_) gathered.swap(calls_);
    }
    for (auto* const call : gathered)
      call->Finish(grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "all are here"));
    return reactor;
  }

 private:
  const size_t wanted_;
  Mutex mu_;
  std::vector<grpc::ServerWriteReactor<v1::GenerateResponse>*> calls_;
};

class CountingTurn final : public TurnObserver {
 public:
  CountingTurn(int* left, Loop* loop) : left_(left), loop_(loop) {}
  void OnPromptInfo(absl::Duration, int64_t, int64_t) override {}
  void OnDelta(absl::Duration, int64_t, bool) override {}
  void OnEnd(absl::Duration, const TurnResult& end) override {
    status = end.status;
    if (--*left_ == 0) loop_->Stop();
  }
  absl::Status status;

 private:
  int* const left_;
  Loop* const loop_;
};

TEST(GrpcTransport, OpensFurtherConnectionsForMoreCallsThanOneCarries) {
  constexpr int kTurns = 1100;
  GatheringService service(kTurns);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1000);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  RealLoop loop;
  auto transport = ConnectGrpcTransport({.address = fmt::format("127.0.0.1:{}", port),
                                         .tls = {},
                                         .api_key = "",
                                         .connect_timeout = absl::Seconds(60),
                                         .connections = 1},
                                        &loop, nullptr);
  ASSERT_TRUE(transport.ok()) << transport.status();
  int left = kTurns;
  std::vector<CountingTurn> turns(kTurns, CountingTurn(&left, &loop));
  for (CountingTurn& turn : turns)
    (*transport)->StartTurn({.model = "m", .session = "", .prompt = {}, .timeout = absl::Seconds(60)}, &turn);
  loop.Run();
  for (const CountingTurn& turn : turns)
    ASSERT_EQ(turn.status.code(), absl::StatusCode::kOutOfRange) << turn.status;
  server->Shutdown();
}

}  // namespace
}  // namespace weir
