// Two replicas behind a real proxy: where calls go, that tokens come one by one, and what a replica's sudden
// end does.
#include "tests/e2e/replicas/replicas.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "runtime/base/error.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Proxies, Replicas, ::testing::Values("nginx", "haproxy"), KindName);

// Cuts whatever hangs.
constexpr std::chrono::minutes kLimit{3};

v1::GenerateRequest TurnOf(const std::string& session, int64_t max_tokens) {
  v1::GenerateRequest request;
  if (session.empty())
    request.set_model("models/tiny");
  else
    request.set_session(SessionResource(session));
  request.mutable_prompt()->set_text("abc");
  request.mutable_stop()->set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

absl::Status Turn(const WeirClient& client, const v1::GenerateRequest& request) {
  return client.Generate(request, [](const v1::Delta&) {}).status();
}

TEST_P(Replicas, ASessionAndItsForksStayOnOneReplicaAndOtherCallsAreSpread) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const WeirClient client = Connect();
  int on_first = 0;
  constexpr int kSessions = 16;
  for (int i = 0; i < kSessions; ++i) {
    const std::string id = "talk-" + std::to_string(i);
    Create(id);
    // A connection of its own each time: it is the metadata that leads there.
    for (int turn = 0; turn < 2; ++turn) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kLimit);
      context.AddMetadata("x-session-id", id);
      const Answer answer =
          Generate(*v1::Generation::NewStub(OwnChannel(proxy_->address())), TurnOf(id, 3), &context);
      ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    }
    v1::ForkSessionRequest fork;
    fork.set_name(SessionResource(id));
    const absl::StatusOr<v1::Session> child = client.ForkSession(fork);
    ASSERT_TRUE(child.ok()) << child.status();
    const absl::Status turn = Turn(client, TurnOf(child->name(), 3));
    EXPECT_TRUE(turn.ok()) << turn;
    EXPECT_EQ(HolderOf(child->name()), HolderOf(id));
    on_first += HolderOf(id) == 0;
    v1::DeleteSessionRequest remove;
    remove.set_name(child->name());
    EXPECT_TRUE(client.DeleteSession(remove).ok());
  }
  EXPECT_GT(on_first, 0);
  EXPECT_LT(on_first, kSessions);
}

TEST_P(Replicas, ASessionThatNobodyWouldFindAgainIsNotMade) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  v1::CreateSessionRequest request;
  request.mutable_session()->set_model("models/tiny");
  grpc::ClientContext context;
  v1::Session session;
  const grpc::Status status =
      v1::Sessions::NewStub(OwnChannel(proxy_->address()))->CreateSession(&context, request, &session);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("x-session-id"));
}

// The next step waits until the client has the token of the one before: a proxy that held anything back would
// stop both.
TEST_P(Replicas, TokensComeOneByOneThroughTheProxy) {
  std::atomic<int64_t> received{0};
  std::atomic<bool> over{false};
  std::shared_ptr<FakeModel> fake;
  std::vector<ServedModel> models;
  models.push_back(MakeServedFake("fake", {}, {.slots = 2}, &fake));
  int64_t step = 0;
  fake->on_step = [&](const StepInput&, const StepState&) {
    const int64_t before = step++;  // tokens that the client can have
    while (received.load() < before && !over.load()) absl::SleepFor(absl::Microseconds(100));
  };
  ServerFixture fixture(std::move(models));
  const Proxy proxy(GetParam(), std::vector<std::string>(2, fixture.address()));
  const auto stub = v1::Generation::NewStub(OwnChannel(proxy.address()));
  constexpr int kTokens = 50;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLimit);
  context.set_wait_for_ready(true);
  auto reader = stub->Generate(&context, GreedyRequest({1}, kTokens));
  v1::GenerateResponse message;
  int deltas = 0;
  while (reader->Read(&message)) {
    deltas += message.has_delta() && message.delta().token_ids_size() > 0;
    received += message.delta().token_ids_size();
  }
  over = true;
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(received, kTokens);
  EXPECT_EQ(deltas, kTokens);
}

TEST_P(Replicas, AfterAKillNothingHangsAndOthersGoOn) {
  ASSERT_NO_FATAL_FAILURE(StartAll());
  const std::string id = SessionOn(0);
  Process stream(Weir({"generate", "-s", id, "--max-tokens", "100000000", "--ignore-eos", "abc"}));
  ASSERT_TRUE(stream.ReadSomething());
  replicas_[0]->process().Signal(SIGKILL);
  // In the midst of a stream: a clear end.
  EXPECT_EQ(stream.Wait(), 3) << stream.output().substr(stream.output().size() - 500);
  EXPECT_THAT(stream.output(),
              AllOf(HasSubstr("broke off"), HasSubstr("try again"), HasSubstr("CONNECTION_LOST")));
  EXPECT_EQ(replicas_[0]->process().Wait(), 1000 + SIGKILL);
  // New calls find the other one, all of them; and it says what it does not have.
  const WeirClient client = Connect();
  for (int i = 0; i < 8; ++i) {
    const absl::Status turn = Turn(client, TurnOf("", 3));
    EXPECT_TRUE(turn.ok()) << turn;
  }
  const absl::Status lost = Turn(client, TurnOf(id, 3));
  EXPECT_EQ(lost.code(), absl::StatusCode::kNotFound) << lost;
  EXPECT_EQ(GetErrorDetails(lost).reason, "SESSION_NOT_FOUND");

  // It comes back.
  ASSERT_NO_FATAL_FAILURE(replicas_[0]->Start(absl::ZeroDuration()));
  Mark(0);
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
  Create(id);
  // HAProxy remembers where the session's last call went.
  EXPECT_EQ(HolderOf(id), proxy_->checks_health() ? 1 : 0);

  // Without any replica calls end at once, and say why.
  for (const auto& replica : replicas_) {
    replica->process().Signal(SIGKILL);
    replica->process().Wait();
  }
  absl::Status none;
  // One that was under way to a replica's last moment may break off.
  for (int i = 0; i < 3; ++i) none = Turn(client, TurnOf("", 3));
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("reaches no Weir server"));
}

}  // namespace
}  // namespace weir::testing
