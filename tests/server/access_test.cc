// API keys over a real socket: every method asks for one, limits hold, and owners do not learn of each other.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/access/api_keys.h"
#include "tests/support/server_fixture.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using testing::Answer;
using testing::DetailOf;
using testing::FixtureOptions;
using testing::Generate;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawCall;
using testing::ReasonOf;
using testing::ServerFixture;
using testing::WaitFor;

// The log of the server's access, as an operator reads it.
class Log {
 public:
  std::function<void(LogLevel, const std::string&)> Sink() {
    return [this](LogLevel level, const std::string& line) {
      MutexLock lock(&mu_);
      text_ += (level == LogLevel::kWarning ? "W " : "I ") + line + "\n";
    };
  }
  std::string text() const {
    MutexLock lock(&mu_);
    return text_;
  }

 private:
  mutable Mutex mu_;
  std::string text_ ABSL_GUARDED_BY(mu_);
};

class AccessTest : public ::testing::Test {
 protected:
  // Limits by name, then a server that asks for the keys.
  void Start(const std::vector<std::pair<std::string, std::string>>& limits,
             std::vector<testing::ServedModel> models = {}) {
    std::string lines;
    for (const auto& [name, words] : limits) lines += Line(name, words);
    FixtureOptions options;
    options.server.access.api_keys = dir_.Write("keys", lines);
    options.server.access.poll_interval = absl::Milliseconds(2);
    options.server.access.log = log_.Sink();
    if (models.empty()) models.push_back(testing::MakeServedFake("fake"));
    fixture_ = std::make_unique<ServerFixture>(std::move(models), options);
  }
  std::string Line(const std::string& name, const std::string& words = "") {
    const NewApiKey made = *MakeApiKey(name);
    keys_[name] = made.key;
    return made.line + " " + words + "\n";
  }
  void Rewrite(const std::string& text) { fs::rename(dir_.Write("keys.new", text), dir_.File("keys")); }

  std::unique_ptr<grpc::ClientContext> As(const std::string& name) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->AddMetadata("authorization", "Bearer " + keys_.at(name));
    return context;
  }
  template <class Stub, class Request, class Response>
  grpc::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const std::string& name, const Request& request, Response* response) {
    return (stub.*method)(As(name).get(), request, response);
  }
  grpc::Status Create(const std::string& name, const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    v1::Session session;
    return Call(fixture_->sessions(), &v1::Sessions::Stub::CreateSession, name, request, &session);
  }
  grpc::Status Info(const std::string& name) {
    v1::ServerInfo info;
    return Call(fixture_->info(), &v1::Server::Stub::GetServerInfo, name, v1::GetServerInfoRequest(), &info);
  }
  Answer Turn(const std::string& name, const v1::GenerateRequest& request) {
    return Generate(fixture_->generation(), request, As(name).get());
  }

  testing::TempDir dir_;
  Log log_;
  std::map<std::string, std::string> keys_;
  std::unique_ptr<ServerFixture> fixture_;
};

// Every method of every proto in the tree, so that one that is added later is asked as well.
std::vector<std::string> AllMethods() {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  std::vector<std::string> methods;
  const fs::path root = fs::path(WEIR_SOURCE_DIR) / "proto";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".proto") continue;
    const std::string name = fs::relative(entry.path(), root).string();
    const auto* file = pool->FindFileByName(name);
    EXPECT_NE(file, nullptr) << name;
    for (int s = 0; file != nullptr && s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      if (service->full_name() == "grpc.health.v1.Health") continue;
      for (int m = 0; m < service->method_count(); ++m)
        methods.push_back("/" + service->full_name() + "/" + service->method(m)->name());
    }
  }
  return methods;
}

TEST_F(AccessTest, EveryMethodAsksForAKey) {
  Start({{"alice", ""}});
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GE(methods.size(), 20u);
  const std::shared_ptr<grpc::Channel> channel = fixture_->NewChannel();
  for (const std::string& method : methods) {
    std::string response;
    const grpc::Status missing = RawCall(channel, method, "", &response);
    EXPECT_EQ(missing.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_EQ(ReasonOf(missing), "API_KEY_MISSING") << method;
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + MakeApiKey("alice")->key);
    const grpc::Status invalid = RawCall(channel, method, "", &response, &context);
    EXPECT_EQ(invalid.error_code(), grpc::StatusCode::UNAUTHENTICATED) << method;
    EXPECT_EQ(ReasonOf(invalid), "API_KEY_INVALID") << method;
    EXPECT_EQ(response, "") << method;
    const auto good = As("alice");
    EXPECT_NE(RawCall(channel, method, "", &response, good.get()).error_code(),
              grpc::StatusCode::UNAUTHENTICATED)
        << method;
  }
}

TEST_F(AccessTest, HealthAsksForNone) {
  Start({{"alice", ""}});
  auto health = grpc::health::v1::Health::NewStub(fixture_->NewChannel());
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  ASSERT_TRUE(health->Check(&context, {}, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_F(AccessTest, AKeyIsAskedForBeforeTheModelsAreLoaded) {
  FixtureOptions options;
  options.server.access.api_keys = dir_.Write("keys", Line("alice"));
  options.serve = false;
  fixture_ = std::make_unique<ServerFixture>(options);
  grpc::ClientContext context;
  v1::ListModelsResponse models;
  EXPECT_EQ(ReasonOf(fixture_->models().ListModels(&context, {}, &models)), "API_KEY_MISSING");
  EXPECT_EQ(ReasonOf(fixture_->models().ListModels(As("alice").get(), {}, &models)), "LOADING");
}

TEST_F(AccessTest, AnotherOwnersSessionsDoNotExist) {
  Start({{"alice", ""}, {"bob", ""}});
  ASSERT_TRUE(Create("alice", "diary").ok());
  v1::GenerateRequest request = GreedyRequest({1}, 3);
  request.set_session("sessions/diary");
  ASSERT_TRUE(Turn("alice", request).status.ok());

  // Bob is told of alice's session exactly what he is told of none.
  auto& sessions = fixture_->sessions();
  const auto told = [&](const std::string& id) {
    v1::Session session;
    v1::GetSessionRequest get;
    get.set_name("sessions/" + id);
    v1::DeleteSessionRequest remove;
    remove.set_name("sessions/" + id);
    google::protobuf::Empty empty;
    v1::AppendSessionRequest append;
    append.set_name("sessions/" + id);
    append.mutable_prompt()->set_text("x");
    v1::AppendSessionResponse appended;
    v1::ForkSessionRequest fork;
    fork.set_name("sessions/" + id);
    v1::UpdateSessionRequest update;
    update.mutable_session()->set_name("sessions/" + id);
    update.mutable_session()->mutable_ttl()->set_seconds(60);
    v1::CreateSnapshotRequest snap;
    snap.set_parent("sessions/" + id);
    v1::Snapshot snapshot;
    v1::ListSnapshotsRequest snaps;
    snaps.set_parent("sessions/" + id);
    v1::ListSnapshotsResponse snapshots;
    v1::GenerateRequest turn = GreedyRequest({1}, 1);
    turn.set_session("sessions/" + id);
    using Stub = v1::Sessions::Stub;
    std::vector<std::string> answers;
    for (const grpc::Status& status :
         {Call(sessions, &Stub::GetSession, "bob", get, &session),
          Call(sessions, &Stub::DeleteSession, "bob", remove, &empty),
          Call(sessions, &Stub::AppendSession, "bob", append, &appended),
          Call(sessions, &Stub::ForkSession, "bob", fork, &session),
          Call(sessions, &Stub::UpdateSession, "bob", update, &session),
          Call(sessions, &Stub::CreateSnapshot, "bob", snap, &snapshot),
          Call(sessions, &Stub::ListSnapshots, "bob", snaps, &snapshots), Turn("bob", turn).status}) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
      std::string text = testing::RpcStatusOf(status).DebugString() + status.error_message();
      for (size_t at; (at = text.find(id)) != std::string::npos;) text.replace(at, id.size(), "ID");
      answers.push_back(text);
    }
    return answers;
  };
  EXPECT_EQ(told("diary"), told("other"));

  // The id is free for him, and then there are two.
  ASSERT_TRUE(Create("bob", "diary").ok());
  EXPECT_EQ(Create("bob", "diary").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  v1::GetSessionRequest get;
  get.set_name("sessions/diary");
  v1::Session his, hers;
  ASSERT_TRUE(Call(sessions, &v1::Sessions::Stub::GetSession, "bob", get, &his).ok());
  ASSERT_TRUE(Call(sessions, &v1::Sessions::Stub::GetSession, "alice", get, &hers).ok());
  EXPECT_EQ(his.owner(), "bob");
  EXPECT_EQ(his.position(), 0);
  EXPECT_EQ(hers.owner(), "alice");
  EXPECT_EQ(hers.position(), 4);
  v1::ListSessionsResponse list;
  ASSERT_TRUE(
      Call(sessions, &v1::Sessions::Stub::ListSessions, "bob", v1::ListSessionsRequest(), &list).ok());
  ASSERT_EQ(list.sessions_size(), 1);
  EXPECT_EQ(list.sessions(0).owner(), "bob");
}

TEST_F(AccessTest, LimitsAreRefusedWithQuotaAndRetry) {
  Start({{"few", "sessions=1"}, {"small", "state-bytes=1"}, {"slow", "requests-per-second=0.001 burst=2"}});
  ASSERT_TRUE(Create("few", "1").ok());
  EXPECT_TRUE(Info("slow").ok());
  EXPECT_TRUE(Info("slow").ok());
  for (const auto& [status, reason, subject] :
       {std::tuple{Create("few", "2"), "SESSION_QUOTA_EXCEEDED", "api_key:few"},
        std::tuple{Create("small", "1"), "STATE_QUOTA_EXCEEDED", "api_key:small"},
        std::tuple{Turn("small", GreedyRequest({1}, 1)).status, "STATE_QUOTA_EXCEEDED", "api_key:small"},
        std::tuple{Info("slow"), "RATE_LIMITED", "api_key:slow"},
        std::tuple{Turn("slow", GreedyRequest({1}, 1)).status, "RATE_LIMITED", "api_key:slow"}}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << reason;
    EXPECT_EQ(ReasonOf(status), reason);
    const auto quota = DetailOf<google::rpc::QuotaFailure>(status);
    ASSERT_TRUE(quota) << reason;
    EXPECT_EQ(quota->violations(0).subject(), subject);
    EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(status)) << reason;
  }
}

TEST_F(AccessTest, TokensOfOneRequest) {
  Start({{"short", "tokens=10"}});
  EXPECT_TRUE(Turn("short", GreedyRequest({1, 2, 3}, 7)).status.ok());
  const Answer refused = Turn("short", GreedyRequest({1, 2, 3}, 8));
  EXPECT_EQ(ReasonOf(refused.status), "TOKEN_LIMIT_EXCEEDED");
  EXPECT_TRUE(DetailOf<google::rpc::QuotaFailure>(refused.status));
  // Waiting would not help.
  EXPECT_FALSE(DetailOf<google::rpc::RetryInfo>(refused.status));
  // A client that names no number gets what is left.
  v1::GenerateRequest open = GreedyRequest({1, 2, 3}, 0);
  open.mutable_stop()->clear_max_tokens();
  open.mutable_stop()->set_ignore_eos(true);
  const Answer rest = Turn("short", open);
  ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
  EXPECT_EQ(rest.token_ids.size(), 7u);
  EXPECT_EQ(rest.finish->max_tokens(), 7);
  // Append and Score have a prompt only.
  v1::ScoreRequest score;
  score.mutable_prompt()->set_text("more than ten tokens");
  v1::ScoreResponse scored;
  EXPECT_EQ(ReasonOf(Call(fixture_->models(), &v1::Models::Stub::Score, "short", score, &scored)),
            "TOKEN_LIMIT_EXCEEDED");
}

TEST_F(AccessTest, ChangedKeysHoldWithoutARestartAndRunningStreamsGoOn) {
  std::vector<testing::ServedModel> models;
  models.push_back(testing::MakeServedFake("fake", {.step_time = absl::Milliseconds(1)}));
  Start({{"alice", ""}}, std::move(models));
  const auto context = As("alice");
  auto stream = fixture_->generation().Generate(context.get(), GreedyRequest({1}, 1'000'000'000));
  v1::GenerateResponse message;
  ASSERT_TRUE(stream->Read(&message));

  const std::string before = dir_.File("keys");
  Rewrite(Line("bob"));
  ASSERT_TRUE(WaitFor([&] { return Info("bob").ok(); })) << log_.text();
  EXPECT_EQ(ReasonOf(Info("alice")), "API_KEY_INVALID");
  EXPECT_TRUE(stream->Read(&message));
  context->TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(log_.text(), HasSubstr("I 1 API keys from the changed"));
  for (const auto& [name, key] : keys_) EXPECT_THAT(log_.text(), Not(HasSubstr(key)));
}

TEST_F(AccessTest, ADamagedFileKeepsTheKeysAndTheLogSaysSo) {
  Start({{"alice", ""}});
  Rewrite("alice " + keys_["alice"] + "\n");
  ASSERT_TRUE(WaitFor([&] {
    return log_.text().find("W the API keys stay as they were") != std::string::npos;
  })) << log_.text();
  EXPECT_THAT(log_.text(), HasSubstr("line 1"));
  EXPECT_THAT(log_.text(), Not(HasSubstr(keys_["alice"])));
  EXPECT_TRUE(Info("alice").ok());
  fs::remove(dir_.File("keys"));
  ASSERT_TRUE(WaitFor([&] { return log_.text().find("No such file") != std::string::npos; }));
  EXPECT_TRUE(Info("alice").ok());
  const std::string old = keys_["alice"];
  Rewrite(Line("alice"));
  EXPECT_TRUE(WaitFor([&] { return Info("alice").ok(); }));
}

TEST_F(AccessTest, ADamagedFileKeepsTheServerFromStarting) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.access.api_keys = dir_.File("none");
  const auto server = WeirServer::Start(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr(dir_.File("none")));
}

}  // namespace
}  // namespace weir
