// Sessions over a real socket, with both kinds of state under them.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/support/server_fixture.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kRounds = 5;  // ten times slower there
#else
constexpr int kRounds = 100;
#endif

class Sessions : public ::testing::TestWithParam<std::string> {
 protected:
  Sessions() : device_(CreateCpuDevice(1)) {
    TinyModelOptions options;
    options.mixer = GetParam();
    std::vector<ServedModel> models;
    models.push_back(MakeServedModel(LoadTinyModel(options, *device_), {.slots = 8, .kv_blocks = 128}));
    fixture_ = std::make_unique<ServerFixture>(std::move(models));
  }

  std::string Create(const std::string& id, absl::Duration ttl = absl::ZeroDuration()) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    if (ttl > absl::ZeroDuration()) {
      request.mutable_session()->mutable_ttl()->set_seconds(absl::ToInt64Seconds(ttl));
      request.mutable_session()->mutable_ttl()->set_nanos(
          static_cast<int32_t>((ttl % absl::Seconds(1)) / absl::Nanoseconds(1)));
    }
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status status = fixture_->sessions().CreateSession(&context, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session.name();
  }
  void Delete(const std::string& name) {
    grpc::ClientContext context;
    v1::DeleteSessionRequest request;
    request.set_name(name);
    google::protobuf::Empty nothing;
    EXPECT_TRUE(fixture_->sessions().DeleteSession(&context, request, &nothing).ok()) << name;
  }
  std::vector<int32_t> Turn(const std::string& session, const std::vector<int32_t>& prompt,
                            int64_t max_tokens) {
    v1::GenerateRequest request = GreedyRequest(prompt, max_tokens);
    request.set_session(session);
    request.mutable_stop()->set_ignore_eos(true);
    const Answer answer = Generate(fixture_->generation(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.what_is_wrong, "");
    return answer.token_ids;
  }
  std::vector<int32_t> Prompt(int n) {
    std::vector<int32_t> ids;
    for (int i = 0; i < n; ++i) ids.push_back(1 + i * 7 % 90);
    return ids;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<ServerFixture> fixture_;
};

TEST_P(Sessions, AppendThenGenerateEqualsGenerate) {
  const std::vector<int32_t> prompt = Prompt(150);
  const std::vector<int32_t> want = Turn(Create("whole"), prompt, 30);
  for (const int first : {1, 63, 64, 65, 100, 149}) {
    const std::string name = Create("split" + std::to_string(first));
    v1::AppendSessionRequest append;
    append.set_name(name);
    for (int i = 0; i < first; ++i) append.mutable_prompt()->mutable_token_ids()->add_ids(prompt[i]);
    grpc::ClientContext context;
    v1::AppendSessionResponse appended;
    ASSERT_TRUE(fixture_->sessions().AppendSession(&context, append, &appended).ok());
    EXPECT_EQ(appended.session().position(), first);
    EXPECT_EQ(Turn(name, {prompt.begin() + first, prompt.end()}, 30), want) << first;
  }
}

TEST_P(Sessions, AForkThatDivergesLeavesItsParentUnchanged) {
  const std::string parent = Create("parent");
  const std::string twin = Create("twin");
  EXPECT_EQ(Turn(parent, Prompt(100), 10), Turn(twin, Prompt(100), 10));
  grpc::ClientContext context;
  v1::ForkSessionRequest request;
  request.set_name(parent);
  request.set_session_id("child");
  v1::Session child;
  ASSERT_TRUE(fixture_->sessions().ForkSession(&context, request, &child).ok());
  EXPECT_EQ(child.position(), 110);
  Turn(child.name(), {5, 6, 7}, 40);
  EXPECT_EQ(Turn(parent, {9}, 40), Turn(twin, {9}, 40));
}

TEST_P(Sessions, AnIdleSessionEndsAfterItsTtl) {
  const std::string name = Create("brief", absl::Milliseconds(300));
  Turn(name, {1}, 1);
  const auto exists = [&] {
    v1::GetSessionRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    v1::Session session;
    return fixture_->sessions().GetSession(&context, request, &session).ok();
  };
  EXPECT_TRUE(WaitFor([&] { return !exists(); }));
  EXPECT_TRUE(WaitFor([&] { return fixture_->engine().Stats()[0].slots_free == 8; }));
}

TEST_P(Sessions, OutputDoesNotDependOnWhatSharesTheBatch) {
  const std::vector<int32_t> want = Turn(Create("alone"), Prompt(70), 60);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&, i] {
      while (!stop.load()) Generate(fixture_->generation(), GreedyRequest(Prompt(20 + 50 * i), 15 + i));
    });
  for (int round = 0; round < 3; ++round)
    EXPECT_EQ(Turn(Create("crowded" + std::to_string(round)), Prompt(70), 60), want);
  stop.store(true);
  for (std::thread& other : others) other.join();
}

// Every slot held long sessions before; what is new there begins from nothing.
TEST_P(Sessions, SES_02_SlotsOfClosedSessionsAreAsNew) {
  const std::vector<int32_t> want = Turn(Create("fresh"), Prompt(1), 40);
  Delete("sessions/fresh");
  for (int i = 0; i < 8; ++i) Turn(Create("old" + std::to_string(i)), Prompt(90 + i), 20);
  for (int i = 0; i < 8; ++i) Delete("sessions/old" + std::to_string(i));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Turn(Create("new" + std::to_string(i)), Prompt(1), 40), want) << i;
}

TEST_P(Sessions, SMP_14_ForksDrawByTheirOwnSeeds) {
  Turn(Create("parent"), Prompt(40), 5);
  const auto draw = [&](const std::string& child, uint64_t seed) {
    grpc::ClientContext context, turn_context;
    v1::ForkSessionRequest fork;
    fork.set_name("sessions/parent");
    fork.set_session_id(child);
    v1::Session session;
    EXPECT_TRUE(fixture_->sessions().ForkSession(&context, fork, &session).ok());
    v1::GenerateRequest request = GreedyRequest({}, 32);
    request.clear_prompt();
    request.set_session(session.name());
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_stop()->set_ignore_eos(true);
    const Answer answer = Generate(fixture_->generation(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer.token_ids;
  };
  std::vector<std::vector<int32_t>> drawn;
  for (uint64_t seed = 1; seed <= 4; ++seed) drawn.push_back(draw("fork" + std::to_string(seed), seed));
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 4u) << "each seed has a text of its own";
  EXPECT_EQ(draw("again", 3), drawn[2]) << "and the same one on an equal fork";
}

INSTANTIATE_TEST_SUITE_P(State, Sessions, ::testing::Values("linear_attention", "softmax"),
                         [](const auto& test) { return test.param == "softmax" ? "Paged" : "Fixed"; });

TEST(SessionsUnderLoad, AThousandOpenedAndClosedManyTimesLeaveEverySlotFree) {
  constexpr int kSessions = 1000;
  std::vector<ServedModel> models;
  models.push_back(MakeServedFake("fake", {}, {.slots = kSessions}));
  ServerFixture fixture(std::move(models));
  auto* stub = fixture.sessions().async();
  struct Call {
    grpc::ClientContext context;
    v1::CreateSessionRequest create;
    v1::DeleteSessionRequest remove;
    v1::Session session;
    google::protobuf::Empty empty;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const bool open : {true, false}) {
      std::vector<std::unique_ptr<Call>> calls;
      std::atomic<int> done{0}, failed{0};
      for (int i = 0; i < kSessions; ++i) {
        auto call = std::make_unique<Call>();
        const std::string id = "s" + std::to_string(i);
        const auto finished = [&](const grpc::Status& status) {
          if (!status.ok()) failed.fetch_add(1);
          done.fetch_add(1);
        };
        if (open) {
          call->create.set_session_id(id);
          stub->CreateSession(&call->context, &call->create, &call->session, finished);
        } else {
          call->remove.set_name("sessions/" + id);
          stub->DeleteSession(&call->context, &call->remove, &call->empty, finished);
        }
        calls.push_back(std::move(call));
        // Unary calls wait in the frontend's bounded line.
        while (i - done.load() > 100) std::this_thread::yield();
      }
      ASSERT_TRUE(WaitFor([&] { return done.load() == kSessions; }));
      ASSERT_EQ(failed.load(), 0) << "round " << round;
      if (open) EXPECT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].slots_free == 0; }));
    }
  }
  EXPECT_TRUE(WaitFor([&] { return fixture.engine().Stats()[0].slots_free == kSessions; }));
}

}  // namespace
}  // namespace weir::testing
