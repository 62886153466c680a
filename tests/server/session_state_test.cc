// Snapshots, rollback, the time to live, and requests that are repeated, over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "google/rpc/error_details.pb.h"
#include "tests/support/server_fixture.h"

namespace weir {
namespace {

using testing::Answer;
using testing::FakeModel;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::ReasonOf;
using testing::ServerFixture;
using Stub = v1::Sessions::Stub;

constexpr char kUuid[] = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
constexpr char kOther[] = "3f2504e0-4f89-41d3-9a0c-0305e82c3302";

class State : public ::testing::Test {
 protected:
  explicit State(testing::FakeModelOptions model = {}, testing::FixtureOptions options = {})
      : fixture_(
            [&] {
              std::vector<testing::ServedModel> models;
              models.push_back(testing::MakeServedFake("fake", model, {.slots = 8}, &fake_));
              return models;
            }(),
            options) {}

  template <class Request, class Response>
  grpc::Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    return (fixture_.sessions().*method)(&context, request, response);
  }
  v1::Session Create(const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::Session session;
    const grpc::Status status = Call(&Stub::CreateSession, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }
  v1::Session Get(const std::string& id) {
    v1::GetSessionRequest request;
    request.set_name("sessions/" + id);
    v1::Session session;
    const grpc::Status status = Call(&Stub::GetSession, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }
  grpc::Status Snapshot(const std::string& session, const std::string& id, v1::Snapshot* snapshot,
                        const std::string& etag = "") {
    v1::CreateSnapshotRequest request;
    request.set_parent("sessions/" + session);
    request.set_snapshot_id(id);
    request.set_etag(etag);
    return Call(&Stub::CreateSnapshot, request, snapshot);
  }
  grpc::Status Rollback(const std::string& session, const std::string& snapshot, v1::Session* out,
                        const std::string& etag = "") {
    v1::RollbackSessionRequest request;
    request.set_name("sessions/" + session);
    request.set_snapshot(snapshot);
    request.set_etag(etag);
    return Call(&Stub::RollbackSession, request, out);
  }
  Answer Turn(const std::string& session, const std::vector<int32_t>& prompt, int64_t max_tokens) {
    v1::GenerateRequest request = GreedyRequest(prompt, max_tokens);
    request.set_session("sessions/" + session);
    return Generate(fixture_.generation(), request);
  }
  v1::AppendSessionRequest AppendRequest(const std::string& session, std::vector<int32_t> ids) {
    v1::AppendSessionRequest request;
    request.set_name("sessions/" + session);
    request.mutable_prompt()->mutable_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
    return request;
  }

  std::shared_ptr<FakeModel> fake_;
  ServerFixture fixture_;
};

TEST_F(State, ASnapshotIsAResourceWithAPrice) {
  Create("s");
  Turn("s", {5, 6}, 4);
  v1::Snapshot snapshot;
  ASSERT_TRUE(Snapshot("s", "one", &snapshot, Get("s").etag()).ok());
  EXPECT_EQ(snapshot.name(), "sessions/s/snapshots/one");
  EXPECT_EQ(snapshot.position(), 6);
  EXPECT_GT(snapshot.state_bytes(), 0);
  EXPECT_GT(snapshot.create_time().seconds(), 0);
  v1::GetSnapshotRequest get;
  get.set_name(snapshot.name());
  v1::Snapshot got;
  ASSERT_TRUE(Call(&Stub::GetSnapshot, get, &got).ok());
  EXPECT_EQ(got.SerializeAsString(), snapshot.SerializeAsString());
  const v1::Session session = Get("s");
  EXPECT_EQ(session.snapshot_bytes(), snapshot.state_bytes());
  EXPECT_GT(session.export_bytes(), session.state_bytes());
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(fixture_.info().GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.snapshot_memory_used_bytes(), snapshot.state_bytes());
  EXPECT_EQ(info.snapshot_memory_bytes(), EngineOptions().snapshot_memory);

  ASSERT_TRUE(Snapshot("s", "", &got).ok());  // a random id
  EXPECT_EQ(got.name().size(), std::string("sessions/s/snapshots/").size() + 32);
  EXPECT_EQ(Snapshot("s", "one", &got).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(ReasonOf(Snapshot("s", "two", &got, "stale")), "ETAG_MISMATCH");
  EXPECT_EQ(Snapshot("nobody", "one", &got).error_code(), grpc::StatusCode::NOT_FOUND);

  v1::DeleteSnapshotRequest remove;
  remove.set_name(snapshot.name());
  google::protobuf::Empty nothing;
  ASSERT_TRUE(Call(&Stub::DeleteSnapshot, remove, &nothing).ok());
  const grpc::Status gone = Call(&Stub::GetSnapshot, get, &got);
  EXPECT_EQ(gone.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(testing::DetailOf<google::rpc::ResourceInfo>(gone)->resource_name(), snapshot.name());
  EXPECT_EQ(testing::DetailOf<google::rpc::ResourceInfo>(gone)->resource_type(), "weir.v1/Snapshot");
}

TEST_F(State, SnapshotListsArePaged) {
  Create("s");
  v1::Snapshot snapshot;
  for (const char* id : {"d", "a", "c", "b", "e"}) ASSERT_TRUE(Snapshot("s", id, &snapshot).ok());
  std::string names;
  v1::ListSnapshotsRequest request;
  request.set_parent("sessions/s");
  request.set_page_size(2);
  do {
    v1::ListSnapshotsResponse page;
    ASSERT_TRUE(Call(&Stub::ListSnapshots, request, &page).ok());
    for (const v1::Snapshot& one : page.snapshots()) names += one.name().back();
    names += '|';
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(names, "ab|cd|e|");
  v1::ListSnapshotsResponse page;
  request.set_page_token("../x");
  EXPECT_EQ(Call(&Stub::ListSnapshots, request, &page).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(State, SES_19_OnlyPlainIdsNameASnapshot) {
  Create("s");
  for (const std::string bad : {"../x", "/etc/x", "a/../../x", ".", "a b", "\xC0\xAE", "x/y"}) {
    v1::Snapshot snapshot;
    EXPECT_NE(Snapshot("s", bad, &snapshot).error_code(), grpc::StatusCode::OK) << bad;
  }
  v1::Snapshot snapshot;
  EXPECT_EQ(Snapshot("s", std::string(300, 'a'), &snapshot).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  for (const std::string bad : {"", "one", "sessions/s", "sessions/s/snapshots/", "sessions//snapshots/one",
                                "sessions/s/snapshots/one/x", "snapshots/one", "sessions/../snapshots/one"}) {
    v1::GetSnapshotRequest get;
    get.set_name(bad);
    EXPECT_EQ(Call(&Stub::GetSnapshot, get, &snapshot).error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << bad;
    v1::Session session;
    EXPECT_EQ(Rollback("s", bad, &session).error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad;
  }
}

TEST_F(State, ARollbackIsExactAndChangesTheEtag) {
  Create("s");
  Create("t");
  Turn("s", {5, 6}, 4);
  v1::Snapshot snapshot;
  ASSERT_TRUE(Snapshot("s", "one", &snapshot).ok());
  const v1::Session before = Get("s");
  const std::vector<int32_t> first = Turn("s", {7}, 50).token_ids;
  v1::Session session;
  EXPECT_EQ(ReasonOf(Rollback("s", snapshot.name(), &session, before.etag())), "ETAG_MISMATCH");
  ASSERT_TRUE(Rollback("s", snapshot.name(), &session, Get("s").etag()).ok());
  EXPECT_EQ(session.position(), 6);
  EXPECT_NE(session.etag(), before.etag());
  EXPECT_THAT(session.recent_token_ids(), ::testing::ElementsAreArray(before.recent_token_ids()));
  EXPECT_EQ(Turn("s", {7}, 50).token_ids, first);
  EXPECT_EQ(Rollback("s", "sessions/s/snapshots/two", &session).error_code(), grpc::StatusCode::NOT_FOUND);
  const grpc::Status other = Rollback("t", snapshot.name(), &session);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(other), "SNAPSHOT_NOT_FOUND");
}

TEST_F(State, GenerateAtAnotherPositionThanExpectedIsAborted) {
  Create("s");
  Turn("s", {5, 6}, 4);
  v1::GenerateRequest request = GreedyRequest({7}, 3);
  request.set_session("sessions/s");
  for (const int64_t wrong : {0, 5, 7}) {
    request.set_expected_position(wrong);
    const grpc::Status status = Generate(fixture_.generation(), request).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
    EXPECT_EQ(ReasonOf(status), "POSITION_MISMATCH");
    EXPECT_EQ(testing::DetailOf<google::rpc::ErrorInfo>(status)->metadata().at("position"), "6");
  }
  EXPECT_EQ(Get("s").position(), 6);
  request.set_expected_position(6);
  EXPECT_TRUE(Generate(fixture_.generation(), request).status.ok());
  EXPECT_EQ(ReasonOf(Generate(fixture_.generation(), request).status), "POSITION_MISMATCH");  // a lost answer
}

TEST_F(State, UpdateChangesTheTimeToLiveAndNothingElse) {
  const v1::Session created = Create("s");
  v1::UpdateSessionRequest request;
  request.mutable_session()->set_name("sessions/s");
  v1::Session session;
  const auto update = [&] { return Call(&Stub::UpdateSession, request, &session); };
  EXPECT_EQ(update().error_code(), grpc::StatusCode::INVALID_ARGUMENT);  // nothing to change
  request.mutable_session()->mutable_ttl()->set_seconds(3600);
  ASSERT_TRUE(update().ok());
  EXPECT_EQ(session.etag(), created.etag());
  EXPECT_GT(session.expire_time().seconds(), created.expire_time().seconds() + 2000);
  request.mutable_update_mask()->add_paths("ttl");
  request.mutable_session()->set_etag("stale");
  EXPECT_EQ(ReasonOf(update()), "ETAG_MISMATCH");
  request.mutable_session()->set_etag(created.etag());
  ASSERT_TRUE(update().ok());
  // A field of the mask that is not set takes its default.
  request.mutable_session()->clear_ttl();
  ASSERT_TRUE(update().ok());
  EXPECT_LT(session.expire_time().seconds(), created.expire_time().seconds() + 2000);
  const int64_t later = session.create_time().seconds() + 7200;
  request.mutable_session()->mutable_expire_time()->set_seconds(later);
  EXPECT_EQ(update().error_code(), grpc::StatusCode::INVALID_ARGUMENT);  // the mask names the other one
  request.mutable_update_mask()->set_paths(0, "expire_time");
  ASSERT_TRUE(update().ok());
  EXPECT_NEAR(static_cast<double>(session.expire_time().seconds()), static_cast<double>(later), 1);
  request.mutable_update_mask()->set_paths(0, "position");
  const grpc::Status refused = update();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("position"));
  request.mutable_update_mask()->set_paths(0, "*");
  EXPECT_TRUE(update().ok());
  request.mutable_session()->set_name("sessions/nobody");
  request.mutable_session()->clear_etag();
  EXPECT_EQ(update().error_code(), grpc::StatusCode::NOT_FOUND);
}

// --- request_id ---

TEST_F(State, ARepeatedCreateMakesOneSession) {
  v1::CreateSessionRequest request;
  request.set_request_id(kUuid);
  v1::Session first, second;
  ASSERT_TRUE(Call(&Stub::CreateSession, request, &first).ok());
  ASSERT_TRUE(Call(&Stub::CreateSession, request, &second).ok());
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_TRUE(testing::WaitFor([&] { return fixture_.engine().Stats()[0].sessions == 1; }));
  request.mutable_session()->mutable_ttl()->set_seconds(77);
  const grpc::Status other = Call(&Stub::CreateSession, request, &second);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(other.error_message(), HasSubstr("request_id"));
  request.set_request_id(kOther);
  ASSERT_TRUE(Call(&Stub::CreateSession, request, &second).ok());
  EXPECT_NE(first.name(), second.name());
  request.set_request_id("not-a-uuid");
  EXPECT_EQ(Call(&Stub::CreateSession, request, &second).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(State, ACreateThatWasRefusedMayBeRepeated) {
  Create("taken");
  v1::CreateSessionRequest request;
  request.set_session_id("taken");
  request.set_request_id(kUuid);
  v1::Session session;
  EXPECT_EQ(Call(&Stub::CreateSession, request, &session).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/taken");
  google::protobuf::Empty nothing;
  ASSERT_TRUE(Call(&Stub::DeleteSession, remove, &nothing).ok());
  EXPECT_TRUE(Call(&Stub::CreateSession, request, &session).ok());
}

TEST_F(State, ARepeatedAppendAppendsOnce) {
  Create("s");
  v1::AppendSessionRequest request = AppendRequest("s", {1, 2, 3});
  request.set_request_id(kUuid);
  request.set_expected_position(0);
  v1::AppendSessionResponse first, second;
  ASSERT_TRUE(Call(&Stub::AppendSession, request, &first).ok());
  EXPECT_EQ(first.appended_tokens(), 3);
  EXPECT_EQ(first.session().position(), 3);
  Turn("s", {4}, 5);
  ASSERT_TRUE(
      Call(&Stub::AppendSession, request, &second).ok());  // its answer, although it would not fit now
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(Get("s").position(), 9);
  request.mutable_prompt()->mutable_token_ids()->add_ids(4);
  EXPECT_EQ(Call(&Stub::AppendSession, request, &second).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_request_id(kOther);
  EXPECT_EQ(ReasonOf(Call(&Stub::AppendSession, request, &second)), "POSITION_MISMATCH");
  request.set_expected_position(9);  // another body, but the refused one left nothing behind
  EXPECT_TRUE(Call(&Stub::AppendSession, request, &second).ok());
}

class SlowState : public State {
 protected:
  SlowState() : State({.step_time = absl::Milliseconds(5)}) {}
};

TEST_F(SlowState, RepeatsWhileTheFirstRunsShareItsAnswer) {
  Create("s");
  v1::AppendSessionRequest request = AppendRequest("s", std::vector<int32_t>(8000, 3));
  request.set_request_id(kUuid);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      v1::AppendSessionResponse response;
      const grpc::Status status = Call(&Stub::AppendSession, request, &response);
      if (status.ok() && response.session().position() == 8000) right.fetch_add(1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 8);
  EXPECT_EQ(Get("s").position(), 8000);
  EXPECT_LE(fake_->tokens(), 8000);
}

TEST_F(SlowState, AnAppendWithAnIdGoesOnWithoutItsClient) {
  Create("s");
  v1::AppendSessionRequest request = AppendRequest("s", std::vector<int32_t>(20'000, 3));
  request.set_request_id(kUuid);
  {
    grpc::ClientContext context;
    v1::AppendSessionResponse response;
    std::atomic<bool> done{false};
    fixture_.sessions().async()->AppendSession(&context, &request, &response,
                                               [&](const grpc::Status&) { done.store(true); });
    ASSERT_TRUE(testing::WaitFor([&] { return fake_->tokens() > 0; }));
    context.TryCancel();
    ASSERT_TRUE(testing::WaitFor([&] { return done.load(); }));
  }
  v1::AppendSessionResponse response;
  ASSERT_TRUE(Call(&Stub::AppendSession, request, &response).ok());
  EXPECT_EQ(response.session().position(), 20'000);
  EXPECT_EQ(Get("s").position(), 20'000);
  // Without an id it ends with its client.
  request.clear_request_id();
  grpc::ClientContext context;
  std::atomic<bool> done{false};
  const int64_t before = fake_->tokens();
  fixture_.sessions().async()->AppendSession(&context, &request, &response,
                                             [&](const grpc::Status&) { done.store(true); });
  ASSERT_TRUE(testing::WaitFor([&] { return fake_->tokens() > before; }));
  context.TryCancel();
  ASSERT_TRUE(testing::WaitFor([&] { return done.load() && !Get("s").busy(); }));
  EXPECT_LT(Get("s").position(), 40'000);
}

TEST_F(SlowState, ABusySessionIsAborted) {
  Create("s");
  v1::Snapshot snapshot;
  ASSERT_TRUE(Snapshot("s", "one", &snapshot).ok());
  v1::GenerateRequest request = GreedyRequest({1}, 1'000'000);
  request.set_session("sessions/s");
  grpc::ClientContext context;
  auto reader = fixture_.generation().Generate(&context, request);
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  v1::Session session;
  EXPECT_EQ(ReasonOf(Rollback("s", snapshot.name(), &session)), "SESSION_BUSY");
  EXPECT_EQ(ReasonOf(Snapshot("s", "two", &snapshot)), "SESSION_BUSY");
  grpc::ClientContext export_context;
  v1::ExportSessionRequest export_request;
  export_request.set_name("sessions/s");
  auto out = fixture_.sessions().ExportSession(&export_context, export_request);
  v1::ExportSessionResponse piece;
  EXPECT_FALSE(out->Read(&piece));
  EXPECT_EQ(ReasonOf(out->Finish()), "SESSION_BUSY");
  v1::UpdateSessionRequest update;
  update.mutable_session()->set_name("sessions/s");
  update.mutable_session()->mutable_ttl()->set_seconds(60);
  EXPECT_TRUE(Call(&Stub::UpdateSession, update, &session).ok());
  context.TryCancel();
  reader->Finish();
}

class SmallMemory : public State {
 protected:
  SmallMemory()
      : State({}, [] {
          testing::FixtureOptions options;
          options.engine.snapshot_memory = 5000;
          return options;
        }()) {}
};

TEST_F(SmallMemory, ARefusedSnapshotNamesTheBytes) {
  Create("s");
  v1::Snapshot snapshot;
  ASSERT_TRUE(Snapshot("s", "one", &snapshot).ok());
  ASSERT_TRUE(Snapshot("s", "two", &snapshot).ok());
  const grpc::Status refused = Snapshot("s", "three", &snapshot);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(refused), "SNAPSHOT_MEMORY_EXHAUSTED");
  EXPECT_THAT(refused.error_message(), HasSubstr(std::to_string(snapshot.state_bytes())));
  EXPECT_TRUE(testing::DetailOf<google::rpc::QuotaFailure>(refused).has_value());
  v1::DeleteSessionRequest remove;
  remove.set_name("sessions/s");
  google::protobuf::Empty nothing;
  ASSERT_TRUE(Call(&Stub::DeleteSession, remove, &nothing).ok());
  EXPECT_EQ(fixture_.engine().snapshot_budget().used(), 0);
}

}  // namespace
}  // namespace weir
