// Counters agree with what clients saw, to the token, whatever became of their streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "fmt/format.h"
#include "runtime/base/clock.h"
#include "tests/support/http_client.h"
#include "tests/support/metrics_text.h"
#include "tests/support/notification.h"
#include "tests/support/server_fixture.h"
#include "tests/support/tcp_proxy.h"

namespace weir {
namespace {

using testing::Answer;
using testing::Generate;
using testing::GreedyRequest;
using testing::HttpGet;
using testing::Scrape;
using testing::ServerFixture;
using testing::WaitFor;

testing::FixtureOptions WithMetrics() {
  testing::FixtureOptions options;
  options.server.metrics_listen = "127.0.0.1:0";
  options.server.frontend.executor.threads = 2;
  return options;
}

std::vector<testing::ServedModel> OneFake(const testing::FakeModelOptions& model = {},
                                          const RunnerLimits& limits = {},
                                          std::shared_ptr<testing::FakeModel>* fake = nullptr) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", model, limits, fake));
  return models;
}

Scrape ScrapeOf(ServerFixture& fixture) {
  return Scrape(HttpGet(fixture.server().metrics_port(), "/metrics").body);
}

double Ended(const Scrape& scrape, const std::string& how) {
  return scrape("weir_requests_total{model=\"fake\",finish_reason=\"" + how + "\"}");
}
double Started(const Scrape& scrape) { return scrape("weir_requests_started_total{model=\"fake\"}"); }
double Rejected(const Scrape& scrape, const std::string& reason) {
  return scrape("weir_admission_rejected_total{reason=\"" + reason + "\"}");
}

// Nothing that says how much goes on now may stay behind when all is over.
void ExpectQuiet(ServerFixture& fixture) {
  const auto quiet = [&] {
    const Scrape now = ScrapeOf(fixture);
    return now.Sum("weir_requests_running") == 0 && now.Sum("weir_requests_waiting") == 0 &&
           now.Sum("weir_streams_open") == 0 && now("weir_state_slots{model=\"fake\",state=\"used\"}") == 0 &&
           now.Sum("weir_sessions") == 0 && now.Sum("weir_session_tokens") == 0 &&
           Started(now) == now.Sum("weir_requests_total");
  };
  EXPECT_TRUE(WaitFor(quiet, absl::Seconds(60))) << HttpGet(fixture.server().metrics_port(), "/metrics").body;
}

// A stream that is open until it is told to end.
class OpenStream {
 public:
  OpenStream(v1::Generation::Stub& stub, const v1::GenerateRequest& request)
      : reader_(stub.Generate(&context_, request)) {}
  // Reads until a token has come; false when the stream ends before.
  bool ReadToken() {
    v1::GenerateResponse message;
    while (reader_->Read(&message))
      if (message.delta().token_ids_size() > 0) return true;
    return false;
  }
  grpc::Status Cancel() {
    context_.TryCancel();
    return End();
  }
  grpc::Status End() {
    v1::GenerateResponse message;
    while (reader_->Read(&message)) {
    }
    return reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
};

TEST(ServerMetrics, OBS_04_EveryRequestIsCountedOnce) {
  // The one slot is held while twenty wait in line, so the next ten are refused.
  ServerFixture fixture(OneFake({}, {.slots = 1, .max_waiting = 20}), WithMetrics());
  constexpr int64_t kEndless = 1'000'000'000;
  OpenStream holder(fixture.generation(), GreedyRequest({1}, kEndless));
  ASSERT_TRUE(holder.ReadToken());
  std::deque<OpenStream> in_line;
  for (int i = 0; i < 20; ++i) in_line.emplace_back(fixture.generation(), GreedyRequest({1}, 5));
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].waiting == 20; }));
  EXPECT_EQ(ScrapeOf(fixture)("weir_requests_waiting{model=\"fake\"}"), 20);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(Generate(fixture.generation(), GreedyRequest({1}, 5)).status.error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  for (OpenStream& stream : in_line) EXPECT_EQ(stream.Cancel().error_code(), grpc::StatusCode::CANCELLED);
  // Only then may the slot be free: none of these gets it.
  ASSERT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].waiting == 0; }));
  EXPECT_EQ(holder.Cancel().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
  for (int i = 0; i < 9; ++i) {
    OpenStream stream(fixture.generation(), GreedyRequest({1}, kEndless));
    ASSERT_TRUE(stream.ReadToken());
    EXPECT_EQ(stream.Cancel().error_code(), grpc::StatusCode::CANCELLED);
  }
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 5)).status.ok());
  ExpectQuiet(fixture);
  const Scrape scrape = ScrapeOf(fixture);
  EXPECT_EQ(scrape("weir_time_to_first_token_seconds_count{model=\"fake\"}"), 70);
  EXPECT_EQ(Ended(scrape, "max_tokens"), 60);
  EXPECT_EQ(Ended(scrape, "cancelled"), 30);
  EXPECT_EQ(scrape.Sum("weir_requests_total"), 90);
  EXPECT_EQ(Started(scrape), 90);
  EXPECT_EQ(Rejected(scrape, "QUEUE_FULL"), 10);
  EXPECT_EQ(scrape.Sum("weir_admission_rejected_total"), 10);
}

// Five ways to end, a hundred streams each, on ten threads.
TEST(ServerMetrics, OBS_06_GaugesFallWhateverEndsAStream) {
  constexpr int32_t kPoison = 99;
  testing::FixtureOptions options = WithMetrics();
  ServerFixture fixture(OneFake({.poison_id = kPoison}, {.slots = 16, .max_waiting = 1000}), options);
  constexpr int64_t kEndless = 1'000'000'000;
  std::atomic<int> finished{0}, cancelled{0}, expired{0}, failed{0}, crashed{0};
  const auto healthy = [&](int64_t tokens) {  // never says what is poison to the model
    v1::GenerateRequest request = GreedyRequest({1}, tokens);
    (*request.mutable_sampling()->mutable_logit_bias())[kPoison] = -100;
    return request;
  };
  const auto with_deadline = [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(20));
    const Answer answer = Generate(fixture.generation(), healthy(kEndless), &context);
    expired += answer.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  };
  const auto crash = [&] {  // ten streams of a client whose machine goes away
    auto proxy = std::make_unique<testing::TcpProxy>(fixture.server().port());
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::Generation::NewStub(
        grpc::CreateCustomChannel(proxy->address(), grpc::InsecureChannelCredentials(), own));
    std::deque<OpenStream> streams;
    for (int i = 0; i < 10; ++i) streams.emplace_back(*stub, healthy(kEndless));
    streams.front().ReadToken();
    proxy.reset();
    for (OpenStream& stream : streams) crashed += !stream.End().ok();
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 10; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        finished += Generate(fixture.generation(), healthy(20)).status.ok();
        OpenStream stream(fixture.generation(), healthy(kEndless));
        if (i % 2 == 0) stream.ReadToken();
        cancelled += stream.Cancel().error_code() == grpc::StatusCode::CANCELLED;
        with_deadline();
        failed += Generate(fixture.generation(), GreedyRequest({1, kPoison}, 20)).status.error_code() ==
                  grpc::StatusCode::INTERNAL;
      }
      crash();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(finished, 100);
  EXPECT_EQ(cancelled, 100);
  EXPECT_EQ(expired, 100);
  EXPECT_EQ(failed, 100);
  EXPECT_EQ(crashed, 100);
  ExpectQuiet(fixture);
  const Scrape scrape = ScrapeOf(fixture);
  EXPECT_EQ(Ended(scrape, "max_tokens"), 100);
  EXPECT_EQ(Ended(scrape, "error"), 100);
  EXPECT_EQ(scrape("weir_state_nonfinite_total{model=\"fake\"}"), 100);
  // A cancelled call may not even have reached the server, and a deadline passes at the client first.
  // Whatever the server has seen of these it counts as one of the two, and nothing else.
  EXPECT_EQ(Ended(scrape, "cancelled") + Ended(scrape, "deadline_exceeded") + 200, Started(scrape));
  EXPECT_LE(Started(scrape), 500);
  EXPECT_GE(Started(scrape), 250);
  EXPECT_EQ(scrape.Sum("weir_admission_rejected_total"), 0);
}

// What was made for a stream that was cancelled is told by its session, which nobody counted.
TEST(ServerMetrics, OBS_08_CancelledStreamsLeaveTheirTokensBehind) {
  ServerFixture fixture(OneFake(), WithMetrics());
  double made = 0;
  for (int i = 0; i < 50; ++i) {
    v1::CreateSessionRequest create;
    v1::Session session;
    grpc::ClientContext creating, getting, deleting;
    ASSERT_TRUE(fixture.sessions().CreateSession(&creating, create, &session).ok());
    v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 1'000'000'000);
    request.set_session(session.name());
    OpenStream stream(fixture.generation(), request);
    ASSERT_TRUE(stream.ReadToken());
    stream.Cancel();
    ASSERT_TRUE(WaitFor([&] { return fixture.server().Idle(); }));
    v1::GetSessionRequest get;
    get.set_name(session.name());
    ASSERT_TRUE(fixture.sessions().GetSession(&getting, get, &session).ok());
    made += static_cast<double>(session.position() - 3);
    const Scrape now = ScrapeOf(fixture);
    EXPECT_EQ(now("weir_session_tokens{model=\"fake\"}"), session.position());
    v1::DeleteSessionRequest remove;
    remove.set_name(session.name());
    google::protobuf::Empty nothing;
    ASSERT_TRUE(fixture.sessions().DeleteSession(&deleting, remove, &nothing).ok());
  }
  ExpectQuiet(fixture);
  const Scrape scrape = ScrapeOf(fixture);
  EXPECT_EQ(Ended(scrape, "cancelled"), 50);
  EXPECT_EQ(scrape("weir_generated_tokens_total{model=\"fake\"}"), made);
  EXPECT_EQ(scrape("weir_prompt_tokens_total{model=\"fake\"}"), 150);
  EXPECT_EQ(scrape("weir_reuse_missed_tokens_total{model=\"fake\",reason=\"new_session\"}"), 150);
}

TEST(ServerMetrics, ScrapesWhileStreamsRunAgreeWithClientsToTheToken) {
  ServerFixture fixture(OneFake({}, {.slots = 4, .max_waiting = 1000}), WithMetrics());
  constexpr int kThreads = 8, kTurns = 40;
  std::atomic<int64_t> seen{0}, streams{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> clients;
  for (int thread = 0; thread < kThreads; ++thread) {
    clients.emplace_back([&, thread] {
      for (int turn = 0; turn < kTurns; ++turn) {
        grpc::ClientContext context;
        auto reader = fixture.generation().Generate(
            &context, GreedyRequest({thread, turn}, 1 + (thread * kTurns + turn) % 97));
        v1::GenerateResponse message;
        while (reader->Read(&message)) seen += message.delta().token_ids_size();
        streams += reader->Finish().ok();
      }
    });
  }
  int scrapes = 0;
  std::thread scraper([&] {
    double tokens_before = 0;
    while (!over.load()) {
      const int64_t seen_before = seen.load(), streams_before = streams.load();
      const Scrape scrape = ScrapeOf(fixture);
      const double tokens = scrape("weir_generated_tokens_total{model=\"fake\"}");
      EXPECT_GE(tokens, static_cast<double>(seen_before));
      EXPECT_GE(tokens, tokens_before);
      EXPECT_GE(Ended(scrape, "max_tokens"), static_cast<double>(streams_before));
      EXPECT_GE(Started(scrape), scrape.Sum("weir_requests_total"));
      tokens_before = tokens;
      ++scrapes;
    }
  });
  for (std::thread& client : clients) client.join();
  over.store(true);
  scraper.join();
  EXPECT_GT(scrapes, 0);
  constexpr int64_t kStreams = kThreads * kTurns;
  EXPECT_EQ(streams.load(), kStreams);
  // At once, without waiting: what a client has seen is counted.
  const Scrape scrape = ScrapeOf(fixture);
  const auto tokens = static_cast<double>(seen.load());
  EXPECT_EQ(scrape("weir_generated_tokens_total{model=\"fake\"}"), tokens);
  EXPECT_EQ(scrape("weir_prompt_tokens_total{model=\"fake\"}"), 2 * kStreams);
  EXPECT_EQ(scrape("weir_time_to_first_token_seconds_count{model=\"fake\"}"), kStreams);
  EXPECT_EQ(scrape("weir_inter_token_latency_seconds_count{model=\"fake\"}"), tokens - kStreams);
  EXPECT_EQ(scrape("weir_request_duration_seconds_count{model=\"fake\"}"), kStreams);
  EXPECT_EQ(Ended(scrape, "max_tokens"), kStreams);
  ExpectQuiet(fixture);
}

TEST(ServerMetrics, RefusalsAreCountedByTheReasonThatTheClientGets) {
  ServerFixture fixture(OneFake({}, {.slots = 1}), WithMetrics());
  Generate(fixture.generation(), GreedyRequest({}, 1));  // no prompt
  v1::GenerateRequest nobody = GreedyRequest({1}, 1);
  nobody.set_session("sessions/nobody");
  Generate(fixture.generation(), nobody);
  v1::GenerateRequest elsewhere = GreedyRequest({1}, 1);
  elsewhere.set_model("models/elsewhere");
  Generate(fixture.generation(), elsewhere);
  v1::Session session;
  grpc::ClientContext first, second, third;
  EXPECT_TRUE(fixture.sessions().CreateSession(&first, v1::CreateSessionRequest(), &session).ok());
  EXPECT_FALSE(fixture.sessions().CreateSession(&second, v1::CreateSessionRequest(), &session).ok());
  fixture.server().Drain();
  Generate(fixture.generation(), GreedyRequest({1}, 1));
  const Scrape scrape = ScrapeOf(fixture);
  EXPECT_EQ(Rejected(scrape, "INVALID_ARGUMENT"), 1);
  EXPECT_EQ(Rejected(scrape, "NOT_FOUND"), 2);
  EXPECT_EQ(Rejected(scrape, "SESSION_CAPACITY_EXHAUSTED"), 1);
  EXPECT_EQ(Rejected(scrape, "DRAINING"), 1);
  EXPECT_EQ(scrape.Sum("weir_admission_rejected_total"), 5);
  EXPECT_EQ(Started(scrape), 0);
}

// Whatever a client asks for: each refusal is counted once, before it knows of it.
TEST(ServerMetrics, EveryCallThatADrainRefusesIsCounted) {
  ServerFixture fixture(OneFake(), WithMetrics());
  v1::CreateSessionRequest create;
  create.set_session_id("s");
  v1::Session session;
  v1::Snapshot snapshot;
  const auto call = [](auto method, const auto& request, auto* response) {
    grpc::ClientContext context;
    return method(&context, request, response);
  };
  v1::Sessions::Stub& stub = fixture.sessions();
  const auto create_session = [&](auto... of_call) { return stub.CreateSession(of_call...); };
  ASSERT_TRUE(call(create_session, create, &session).ok());
  v1::GenerateRequest request = GreedyRequest({1}, 1);
  request.set_session("sessions/s");
  ASSERT_TRUE(Generate(fixture.generation(), request).status.ok());
  v1::CreateSnapshotRequest keep;
  keep.set_parent("sessions/s");
  keep.set_snapshot_id("kept");
  const auto create_snapshot = [&](auto... of_call) { return stub.CreateSnapshot(of_call...); };
  ASSERT_TRUE(call(create_snapshot, keep, &snapshot).ok());
  fixture.server().Drain();

  v1::ForkSessionRequest fork;
  fork.set_name("sessions/s");
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/s");
  update.mutable_session()->mutable_ttl()->set_seconds(5);
  v1::RollbackSessionRequest rollback;
  rollback.set_name("sessions/s");
  rollback.set_snapshot("sessions/s/snapshots/kept");
  v1::AppendSessionRequest append;
  append.set_name("sessions/s");
  append.mutable_prompt()->mutable_token_ids()->add_ids(7);
  v1::AppendSessionResponse appended;
  v1::AppendSessionRequest once = append;
  once.set_request_id("3f2504e0-4f89-41d3-9a0c-0305e82c3301");
  v1::ScoreRequest score;
  for (const int id : {1, 2, 3}) score.mutable_prompt()->mutable_token_ids()->add_ids(id);
  v1::ScoreResponse scored;
  v1::Session other;
  v1::CreateSessionRequest create_other;
  const auto append_session = [&](auto... of_call) { return stub.AppendSession(of_call...); };
  const std::vector<std::pair<const char*, std::function<grpc::Status()>>> calls = {
      {"Generate", [&] { return Generate(fixture.generation(), request).status; }},
      {"Create", [&] { return call(create_session, create_other, &other); }},
      {"CreateSnapshot", [&] { return call(create_snapshot, keep, &snapshot); }},
      {"Fork",
       [&] { return call([&](auto... of_call) { return stub.ForkSession(of_call...); }, fork, &other); }},
      {"Update",
       [&] { return call([&](auto... of_call) { return stub.UpdateSession(of_call...); }, update, &other); }},
      {"Rollback",
       [&] {
         return call([&](auto... of_call) { return stub.RollbackSession(of_call...); }, rollback, &other);
       }},
      {"Append", [&] { return call(append_session, append, &appended); }},
      {"Append, once", [&] { return call(append_session, once, &appended); }},
      {"Score",
       [&] {
         return call([&](auto... of_call) { return fixture.models().Score(of_call...); }, score, &scored);
       }},
      {"Import", [&] {
         grpc::ClientContext context;
         auto writer = stub.ImportSession(&context, &other);
         v1::ImportSessionRequest message;
         message.set_total_bytes(1000);
         writer->Write(message);
         writer->WritesDone();
         return writer->Finish();
       }}};
  int refused = 0;
  for (const auto& [what, refused_call] : calls) {
    EXPECT_EQ(testing::ReasonOf(refused_call()), "DRAINING") << what;
    EXPECT_EQ(Rejected(ScrapeOf(fixture), "DRAINING"), ++refused) << what;
  }
  EXPECT_EQ(ScrapeOf(fixture).Sum("weir_admission_rejected_total"), refused);
}

TEST(ServerMetrics, ARefusalForWantOfALineToTokenizeInIsCounted) {
  testing::FixtureOptions options = WithMetrics();
  options.server.frontend.executor.max_tasks = 0;
  ServerFixture fixture(OneFake(), options);
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("a");
  v1::TokenizeResponse response;
  EXPECT_EQ(testing::ReasonOf(fixture.models().Tokenize(&context, request, &response)), "QUEUE_FULL");
  EXPECT_EQ(Rejected(ScrapeOf(fixture), "QUEUE_FULL"), 1);
}

TEST(ServerMetrics, HealthzThroughLoadingServingAndDraining) {
  testing::FixtureOptions options = WithMetrics();
  options.serve = false;
  ServerFixture fixture(OneFake(), options);
  const int port = fixture.server().metrics_port();
  testing::HttpAnswer health = HttpGet(port, "/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, "loading\n");
  EXPECT_EQ(HttpGet(port, "/livez").status, 200);
  Generate(fixture.generation(), GreedyRequest({1}, 1));
  const Scrape loading = ScrapeOf(fixture);
  EXPECT_EQ(loading("weir_serving"), 0);
  EXPECT_EQ(Rejected(loading, "LOADING"), 1);
  EXPECT_GT(loading("process_resident_memory_bytes"), 1 << 20);
  fixture.Serve();
  health = HttpGet(port, "/healthz");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "serving\n");
  EXPECT_EQ(ScrapeOf(fixture)("weir_serving"), 1);
  OpenStream running(fixture.generation(), GreedyRequest({1}, 1'000'000'000));
  ASSERT_TRUE(running.ReadToken());
  fixture.server().Leave();
  EXPECT_TRUE(Generate(fixture.generation(), GreedyRequest({1}, 1)).status.ok()) << "taken until the drain";
  health = HttpGet(port, "/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, "draining\n");
  EXPECT_EQ(ScrapeOf(fixture)("weir_serving"), 0);
  fixture.server().Drain();
  health = HttpGet(port, "/healthz");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.body, "draining\n");
  EXPECT_EQ(HttpGet(port, "/livez").status, 200);
  EXPECT_EQ(ScrapeOf(fixture)("weir_requests_running{model=\"fake\"}"), 1) << "what runs goes on";
  running.Cancel();
}

TEST(ServerMetrics, APortThatIsTakenIsAClearError) {
  ServerFixture fixture(OneFake(), WithMetrics());
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = fmt::format("127.0.0.1:{}", fixture.server().metrics_port());
  const auto second = WeirServer::Start(options);
  EXPECT_THAT(
      std::string(second.status().message()),
      ::testing::HasSubstr("another program has the port; choose another address with --metrics-listen"));
}

}  // namespace
}  // namespace weir
