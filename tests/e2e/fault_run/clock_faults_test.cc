// Somebody sets the clock. What the server measures (lives, limits, rates, stalls) goes by the time that
// passes, what it shows (expire_time, create_time) by the clock as it stands.
//
// gRPC's own timers (deadlines, keepalive) are measured by CLOCK_MONOTONIC, but those that sleep wait in
// Abseil for a time of the wall clock: after a jump back they may come late, which neither the shim shows nor
// anybody here can change. The deadline of a turn is looked at by the engine, too.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "fmt/format.h"
#include "grpcpp/client_context.h"
#include "runtime/base/error.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/support/server_fixture.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {
namespace {

constexpr int64_t kDay = 24 * 60 * 60;

class ClockFaults : public FaultRun {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "the sanitizers' runtimes do not let another library come before them";
    const int fd = open(dir_.Write("clock", std::string(sizeof(int64_t), '\0')).c_str(), O_RDWR | O_CLOEXEC);
    offset_ = static_cast<std::atomic<int64_t>*>(
        mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    close(fd);
    ASSERT_NE(static_cast<void*>(offset_), MAP_FAILED);
  }
  std::vector<std::string> Shim() const {
    return {"LD_PRELOAD=" WEIR_CLOCK_SHIM, "CLOCK_SHIM_FILE=" + dir_.File("clock")};
  }
  // Returns when every witness has begun and ended a talk since; the engine has then looked at all that it
  // measures.
  void SetClock(int64_t seconds) {
    offset_->store(seconds);
    AwaitTalks(2);
  }
  // By the server's clock.
  absl::Time Now() const { return absl::Now() + absl::Seconds(offset_->load()); }

 private:
  std::atomic<int64_t>* offset_ = nullptr;
};

// Something of each kind that has a limit, begun before the clock is set, and to go on after it.
class Lasting {
 public:
  Lasting(const std::shared_ptr<grpc::Channel>& channel, WeirClient client, v1::GenerateRequest request)
      : client_(std::move(client)),
        generation_(v1::Generation::NewStub(channel)),
        sessions_(v1::Sessions::NewStub(channel)) {
    created_.mutable_session()->set_model(request.model());
    created_.mutable_session()->mutable_ttl()->set_seconds(600);
    static int number = 0;  // a used one would give the session of before
    created_.set_request_id(fmt::format("11111111-2222-4333-8444-{:012}", ++number));
    const absl::StatusOr<v1::Session> session = client_.CreateSession(created_);
    EXPECT_TRUE(session.ok()) << session.status();
    session_ = session.value_or(v1::Session());
    v1::ExportSessionRequest name;
    name.set_name(session_.name());
    EXPECT_TRUE(
        client_
            .ExportSession(name, [&](std::string_view data) { return exported_ += data, absl::OkStatus(); })
            .ok());
    // A turn with a deadline and a limit of time, of which nothing is read for now.
    request.mutable_stop()->mutable_max_time()->set_seconds(3600);
    turn_context_.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
    turn_ = generation_->Generate(&turn_context_, request);
    // The first half of an upload.
    upload_ = sessions_->ImportSession(&upload_context_, &imported_);
    v1::ImportSessionRequest piece;
    piece.set_total_bytes(static_cast<int64_t>(exported_.size()));
    piece.set_data(exported_.substr(0, exported_.size() / 2));
    EXPECT_TRUE(upload_->Write(piece));
  }
  v1::Session Get() const {
    v1::GetSessionRequest request;
    request.set_name(session_.name());
    const absl::StatusOr<v1::Session> session = client_.GetSession(request);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.value_or(v1::Session());
  }
  // The same request once more.
  void ExpectRemembered() const {
    const absl::StatusOr<v1::Session> again = client_.CreateSession(created_);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->name(), session_.name());
  }
  // All of it ends as if nothing had been.
  void ExpectGoodEnd(int64_t tokens) {
    v1::GenerateResponse message, last;
    while (turn_->Read(&message)) last = message;
    const grpc::Status turned = turn_->Finish();
    EXPECT_TRUE(turned.ok()) << turned.error_message();
    EXPECT_EQ(last.finish().max_tokens(), tokens) << last.ShortDebugString();
    v1::ImportSessionRequest piece;
    piece.set_data(exported_.substr(exported_.size() / 2));
    upload_->Write(piece);
    upload_->WritesDone();
    const grpc::Status uploaded = upload_->Finish();
    EXPECT_TRUE(uploaded.ok()) << uploaded.error_message();
    for (const std::string& name : {session_.name(), imported_.name()}) {
      v1::DeleteSessionRequest request;
      request.set_name(name);
      const absl::Status deleted = client_.DeleteSession(request);
      EXPECT_TRUE(deleted.ok()) << deleted;
    }
  }

 private:
  const WeirClient client_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Sessions::Stub> sessions_;
  v1::CreateSessionRequest created_;
  v1::Session session_, imported_;
  std::string exported_;
  grpc::ClientContext turn_context_, upload_context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> turn_;
  std::unique_ptr<grpc::ClientWriter<v1::ImportSessionRequest>> upload_;
};

TEST_F(ClockFaults, ADayAheadAndADayBack) {
  StartServer({"--reader-stall", "5m"}, Shim());
  constexpr int64_t kTokens = 6000;
  Endure([&] {
    Lasting lasting(NewChannel(), Connect(), Request(kTwins[0], kTokens));
    for (const int64_t seconds : {kDay, -kDay, int64_t{0}}) {
      SetClock(seconds);
      const v1::Session session = lasting.Get();
      const absl::Duration left = absl::FromUnixSeconds(session.expire_time().seconds()) - Now();
      EXPECT_GT(left, absl::Seconds(600 - 200)) << seconds;
      EXPECT_LE(left, absl::Seconds(600)) << seconds;
      lasting.ExpectRemembered();
    }
    lasting.ExpectGoodEnd(kTokens);
  });
  StopServer();
}

// Time does not stand still, either, until the clock has caught up with what it was.
TEST_F(ClockFaults, AfterAJumpBackSessionsStillExpire) {
  StartServer({}, Shim());
  Endure([&] {
    const WeirClient client = Connect();
    v1::CreateSessionRequest request;
    request.mutable_session()->set_model(ModelResource(kTwins[0]));
    request.mutable_session()->mutable_ttl()->set_seconds(2);
    const absl::StatusOr<v1::Session> session = client.CreateSession(request);
    ASSERT_TRUE(session.ok()) << session.status();
    SetClock(-kDay);
    v1::GetSessionRequest get;
    get.set_name(session->name());
    EXPECT_TRUE(WaitFor([&] { return absl::IsNotFound(client.GetSession(get).status()); }));
    SetClock(0);
  });
  StopServer();
}

TEST_F(ClockFaults, RatesHold) {
  Process maker({WEIR_SERVER_BINARY, "--new-api-key", "witness"}),
      other({WEIR_SERVER_BINARY, "--new-api-key", "rare"});
  std::string lines, rare_key;
  for (Process* process : {&maker, &other}) {
    ASSERT_EQ(process->Wait(), 0);
    const std::string& output = process->output();
    const size_t key = output.find("weir_"), hash = output.find("sha256:");
    (process == &maker ? api_key_ : rare_key) = output.substr(key, output.find('\n', key) - key);
    lines += (process == &maker ? "witness " : "rare ") +
             output.substr(hash, output.find('\n', hash) - hash) +
             (process == &maker ? "\n" : " requests-per-second=0.001 burst=2\n");
  }
  StartServer({"--api-keys", dir_.Write("keys", lines)}, Shim());
  ConnectOptions options;
  options.api_key = rare_key;
  const absl::StatusOr<WeirClient> rare = WeirClient::Connect(address_, options);
  ASSERT_TRUE(rare.ok()) << rare.status();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(rare->GetServerInfo().ok());
  Endure([&] {
    for (const int64_t seconds : {kDay, -kDay, int64_t{0}}) {
      SetClock(seconds);
      const absl::Status refused = rare->GetServerInfo().status();
      EXPECT_EQ(GetErrorDetails(refused).reason, "RATE_LIMITED") << seconds;
      EXPECT_LE(GetErrorDetails(refused).retry_after, absl::Seconds(1000));
    }
  });
  StopServer();
}

}  // namespace
}  // namespace weir::testing
