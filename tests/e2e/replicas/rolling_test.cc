// Replicas that are stopped on purpose: sessions that move away, and restarts that nobody notices.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/replicas/replicas.h"
#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

class Rolling : public Replicas {
 protected:
  // What an operator does before a replica ends: nginx is told, HAProxy asks the replica itself. Afterwards
  // no new call comes to it.
  void TakeOut(int replica) {
    if (!proxy_->checks_health()) ASSERT_NO_FATAL_FAILURE(proxy_->Reload(replica));
    if (proxy_->checks_health()) replicas_[replica]->process().Signal(SIGTERM);
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(1 - replica, true));
    if (!proxy_->checks_health()) replicas_[replica]->process().Signal(SIGTERM);
  }
  void BringBack(int replica) {
    if (!proxy_->checks_health()) ASSERT_NO_FATAL_FAILURE(proxy_->Reload(-1));
    ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(replica, false));
  }
};

INSTANTIATE_TEST_SUITE_P(Proxies, Rolling, ::testing::Values("nginx", "haproxy"), KindName);

TEST_P(Rolling, ASessionMovesAwayFromALeavingReplicaAndGoesOnToTheBit) {
  ASSERT_NO_FATAL_FAILURE(StartAll(absl::Hours(1)));
  const std::string id = SessionOn(0);
  const auto run = [&](const std::vector<std::string>& command) {
    Process process(command);
    EXPECT_EQ(process.Wait(), 0) << process.output();
    return process.output();
  };
  run(Weir({"generate", "-s", id, "-n", "40", "--ignore-eos", "--seed", "5", "abc"}));
  ASSERT_NO_FATAL_FAILURE(TakeOut(0));
  const std::string& old = replicas_[0]->address();
  // The replica is still there for those who know its own address.
  Process quiet(Weir({"info", "--quiet"}, old));
  EXPECT_EQ(quiet.Wait(), 1) << "NOT_SERVING";
  run(Weir({"sessions", "fork", id, "--id", "twin"}, old));
  const auto go_on = [&](const std::string& session, const std::string& address) {
    std::istringstream lines(run(
        Weir({"--json", "generate", "-n", "200", "--ignore-eos", "--seed", "9", "-s", session}, address)));
    std::vector<int> tokens;
    for (std::string line; std::getline(lines, line);) {
      const auto event = nlohmann::json::parse(line, nullptr, false);
      if (event.contains("delta"))
        for (const int token : event["delta"]["token_ids"]) tokens.push_back(token);
    }
    EXPECT_THAT(tokens, ::testing::SizeIs(200));
    return tokens;
  };
  const std::vector<int> stayed = go_on("twin", old);
  EXPECT_THAT(run({"/usr/bin/env", "WEIR=" WEIR_CLIENT_BINARY, WEIR_SOURCE_DIR "/deploy/move-sessions.sh",
                   old, proxy_->address()}),
              HasSubstr(" moved, 0 left"));
  EXPECT_EQ(HolderOf(id), 1);
  EXPECT_EQ(go_on(id, ""), stayed);
  replicas_[0]->process().Signal(SIGTERM);
  EXPECT_EQ(replicas_[0]->process().Wait(), 0);
  if (!proxy_->checks_health()) return;  // nginx goes by the hash again as soon as the replica is back
  run(Weir({"sessions", "delete", "mark-0"}, replicas_[1]->address()));  // that came with the others
  ASSERT_NO_FATAL_FAILURE(replicas_[0]->Start(absl::Hours(1)));
  Mark(0);
  ASSERT_NO_FATAL_FAILURE(WaitUntilAnswers(0, false));
  run(Weir({"generate", "-s", id, "-n", "3"}));
}

// nginx, when it is reloaded, closes connections without an earlier word: a call that was just on its way
// there is not done and ends with a status that no replica has sent. Clients make it again.
Answer GenerateAgainIfSentAway(v1::Generation::Stub& stub, const v1::GenerateRequest& request,
                               std::atomic<int>* sent_away) {
  while (true) {
    Answer answer = Generate(stub, request);
    if (*sent_away == 10) return answer;  // more than there are reloads
    if (answer.status.error_code() != grpc::StatusCode::UNAVAILABLE ||
        !answer.status.error_details().empty() || !answer.messages.empty())
      return answer;
    ++*sent_away;
  }
}

// Turns without a session, one after the other; every refusal and break is kept.
class Caller {
 public:
  explicit Caller(std::shared_ptr<grpc::Channel> channel) : thread_([this, channel] { Run(channel); }) {}
  ~Caller() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int calls() const { return calls_; }
  int sent_away() const { return sent_away_; }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  void Run(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::Generation::NewStub(channel);
    while (!stop_) {
      const Answer answer = GenerateAgainIfSentAway(*stub, GreedyRequest({1, 2, 3}, 5), &sent_away_);
      ++calls_;
      if (!answer.status.ok())
        failures_.push_back(std::to_string(answer.status.error_code()) + " " + answer.status.error_message());
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0}, sent_away_{0};
  std::vector<std::string> failures_;
  std::thread thread_;
};

// Turns that end by themselves after `limit`.
class EndingStreams {
 public:
  EndingStreams(int n, const std::string& address, absl::Duration limit) : answers_(n) {
    for (int i = 0; i < n; ++i)
      threads_.emplace_back([this, i, address, limit] {
        v1::GenerateRequest request = GreedyRequest({1, 2, 3}, 1'000'000'000'000);
        request.mutable_stop()->set_ignore_eos(true);
        request.mutable_stop()->mutable_max_time()->set_seconds(absl::ToInt64Seconds(limit));
        answers_[i] =
            GenerateAgainIfSentAway(*v1::Generation::NewStub(OwnChannel(address)), request, &sent_away_);
      });
  }
  int sent_away() const { return sent_away_; }
  void ExpectWholeAnswers() {
    for (std::thread& thread : threads_) thread.join();
    for (const Answer& answer : answers_) {
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_code() << " " << answer.status.error_message();
      EXPECT_EQ(answer.what_is_wrong, "");
      EXPECT_TRUE(answer.finish && answer.finish->has_time_limit());
    }
  }

 private:
  std::vector<Answer> answers_;
  std::atomic<int> sent_away_{0};
  std::vector<std::thread> threads_;
};

TEST_P(Rolling, DEP_04_ARollingRestartBreaksNoStreamAndRefusesNoCall) {
  // HAProxy needs 1.6 s to see that a replica leaves; nginx has been told.
  const absl::Duration delay = GetParam() == "haproxy" ? absl::Seconds(kSlow ? 8 : 4) : absl::ZeroDuration();
  ASSERT_NO_FATAL_FAILURE(StartAll(delay));
  // A connection that always has a call, and one that is idle between them.
  const auto busy = OwnChannel(proxy_->address());
  Caller first(busy), second(busy), third(busy), alone(OwnChannel(proxy_->address()));
  const int streams_of_each = kSlow ? 3 : 8, reloads = 4;
  for (int replica = 0; replica < 2; ++replica) {
    const auto running = [&] {
      int64_t sum = 0;
      const absl::StatusOr<v1::ServerInfo> info = replicas_[replica]->Connect().GetServerInfo();
      WEIR_CHECK(info.ok());
      for (const v1::ModelUse& use : info->models()) sum += use.requests_running();
      return sum;
    };
    EndingStreams streams(streams_of_each, proxy_->address(), delay + absl::Seconds(1));
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (running() == 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
    ASSERT_NO_FATAL_FAILURE(TakeOut(replica));
    streams.ExpectWholeAnswers();
    EXPECT_LE(streams.sent_away(), proxy_->checks_health() ? 0 : streams_of_each);
    EXPECT_EQ(replicas_[replica]->process().Wait(), 0) << replicas_[replica]->process().output();
    EXPECT_THAT(replicas_[replica]->process().output(), HasSubstr("stopped"));
    ASSERT_NO_FATAL_FAILURE(replicas_[replica]->Start(delay));
    Mark(replica);
    ASSERT_NO_FATAL_FAILURE(BringBack(replica));
  }
  for (Caller* caller : {&first, &second, &third, &alone}) {
    caller->Stop();
    EXPECT_GT(caller->calls(), 10);
    EXPECT_LE(caller->sent_away(), proxy_->checks_health() ? 0 : reloads);
    EXPECT_THAT(caller->failures(), ::testing::IsEmpty());
  }
}

}  // namespace
}  // namespace weir::testing
