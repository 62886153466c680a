// Clients that read slowly or not at all, vanish, stay idle in their thousands, or only connect.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <type_traits>

#include "fmt/format.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/e2e/fault_run/fault_harness.h"
#include "tests/e2e/fault_run/raw_connection.h"
#include "tests/support/server_fixture.h"
#include "tests/support/tcp_proxy.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/sessions.grpc.pb.h"

namespace weir::testing {
namespace {

class ConnectionFaults : public FaultRun {};

constexpr int64_t kLong = 6000;  // tokens: more than may wait for a reader

// A turn that goes on until its reader is given up, with large messages, so that the transport's windows fill
// soon.
v1::GenerateRequest Flood(v1::GenerateRequest request) {
  request.mutable_output()->set_top_logprobs(20);
  return request;
}

// A Generate call whose reader has stopped after the first message.
class StoppedReader {
 public:
  StoppedReader(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerateRequest& request)
      : stub_(v1::Generation::NewStub(channel)), reader_(stub_->Generate(&context_, request)) {
    v1::GenerateResponse first;
    began_ = reader_->Read(&first);
  }
  ~StoppedReader() {
    context_.TryCancel();
    End();
  }
  bool began() const { return began_; }
  grpc::Status End() {
    if (ended_) return status_;
    v1::GenerateResponse message;
    while (reader_->Read(&message)) {
    }
    ended_ = true;
    return status_ = reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  bool began_ = false, ended_ = false;
  grpc::Status status_;
};

TEST_F(ConnectionFaults, SlowReadersAreGivenUp) {
  StartServer({"--reader-stall", kSanitized ? "20s" : "2s"});
  // Else gRPC makes room for megabytes that nobody has asked for.
  grpc::ChannelArguments narrow;
  narrow.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  Endure([&] {
    std::deque<StoppedReader> readers;
    for (int i = 0; i < 8; ++i) {
      readers.emplace_back(NewChannel(narrow), Flood(Request(kTwins[i % 2], kLong)));
      ASSERT_TRUE(readers.back().began());
    }
    // Nobody reads, so the server alone frees the slots.
    ASSERT_TRUE(WaitFor(
        [&] {
          const v1::ServerInfo info = Info();
          for (const v1::ModelUse& use : info.models())
            if (use.slots_total() - use.slots_free() > 1) return false;  // the witness has one
          return true;
        },
        kPatience));
    for (StoppedReader& reader : readers) EXPECT_FALSE(reader.End().ok());
  });
  StopServer();
}

// Cut off without a word, some in the midst of a turn, some of an upload, some before they asked for
// anything.
TEST_F(ConnectionFaults, HalfOpenConnectionsAreNoticed) {
  StartServer(
      {"--keepalive-time", kSanitized ? "10s" : "1s", "--keepalive-timeout", kSanitized ? "20s" : "2s"});
  Endure([&] {
    const int64_t before = Descriptors();
    std::deque<TcpProxy> proxies;
    std::deque<StoppedReader> readers;
    std::deque<grpc::ClientContext> contexts;
    std::deque<v1::Session> sessions;
    std::vector<std::unique_ptr<grpc::ClientWriter<v1::ImportSessionRequest>>> uploads;
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < 6; ++i) {
      TcpProxy& proxy = proxies.emplace_back(port());
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      channels.push_back(
          grpc::CreateCustomChannel(proxy.address(), grpc::InsecureChannelCredentials(), arguments));
      ASSERT_TRUE(channels.back()->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
      if (i < 2) readers.emplace_back(channels.back(), Flood(Request(kTwins[i], kLong)));
      if (i >= 2 && i < 4)
        uploads.push_back(v1::Sessions::NewStub(channels.back())
                              ->ImportSession(&contexts.emplace_back(), &sessions.emplace_back()));
    }
    EXPECT_GE(Descriptors(), before + 6);
    for (TcpProxy& proxy : proxies) proxy.Freeze();
    // The sockets are open at this end all the while.
    EXPECT_TRUE(WaitFor([&] { return Descriptors() <= before; }, kPatience)) << Descriptors();
    for (grpc::ClientContext& context : contexts) context.TryCancel();
    for (const auto& upload : uploads) upload->Finish();
  });
  StopServer();
}

// Those who come, say a part of what is said at the beginning, and stay.
TEST_F(ConnectionFaults, AThousandConnectionsThatSayNothingOrHalf) {
  StartServer();
  const std::string whole = Opening("/weir.v1.Generation/Generate");
  Endure([&] {
    std::vector<RawConnection> connections;
    for (int i = 0; i < Many(1000); ++i) {
      connections.emplace_back(port());
      ASSERT_TRUE(connections.back().connected()) << i;
      connections.back().Send(std::string_view(whole).substr(0, whole.size() * (i % 10) / 9));
    }
    EXPECT_TRUE(WaitFor([&] { return Descriptors() >= Many(1000); }, kPatience));
    ExpectServed();
    for (size_t i = 0; i < connections.size(); i += 2) connections[i].Reset();
  });
  StopServer();
}

// How the streams of one crowd stand. gRPC's threads count, the test waits.
struct Crowd {
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
};

// A call that is held until the test lets go of it, and then deletes itself. A reader takes what comes if it
// `reads_on`, else one message.
template <class Reactor, class Message>
class HeldCall : public Reactor {
 public:
  HeldCall(Crowd* crowd, bool reads_on) : crowd_(*crowd), reads_on_(reads_on) {}
  void LetGo() {
    context.TryCancel();
    this->RemoveHold();
  }
  void OnDone(const grpc::Status& /*status*/) override {
    Crowd& crowd = crowd_;
    delete this;
    crowd.ended.fetch_add(1);
  }
  void OnReadDone(bool ok) {  // of readers alone
    if (!ok) return;
    if (!std::exchange(begun_, true)) crowd_.begun.fetch_add(1);
    if constexpr (kReads)
      if (reads_on_) this->StartRead(&message);
  }
  // Once the stub has bound it to a call.
  void Begin() {
    this->AddHold();
    if constexpr (kReads) this->StartRead(&message);
    this->StartCall();
  }
  grpc::ClientContext context;
  Message message;  // the last one, or the answer to an upload

 private:
  static constexpr bool kReads = std::is_base_of_v<grpc::ClientReadReactor<Message>, Reactor>;
  Crowd& crowd_;
  const bool reads_on_;
  bool begun_ = false;
};

// Three quarters watch the health, the others have begun an upload and send nothing; on each connection there
// is a turn, too, whose reader does not read.
class IdleStreams {
 public:
  IdleStreams(const std::vector<std::shared_ptr<grpc::Channel>>& channels, int streams,
              const v1::GenerateRequest& turn)
      : turn_(turn) {
    for (const auto& channel : channels) {
      health_.push_back(grpc::health::v1::Health::NewStub(channel));
      sessions_.push_back(v1::Sessions::NewStub(channel));
      generation_.push_back(v1::Generation::NewStub(channel));
    }
    for (int i = 0; i < streams; ++i) {
      const size_t at = static_cast<size_t>(i) % channels.size();
      if (i / static_cast<int>(channels.size()) % 4 == 0)
        Upload(sessions_[at].get());
      else
        Watch(health_[at].get());
    }
    for (const auto& stub : generation_) Turn(stub.get());
  }
  // All that are answered have been. What is not answered went out on the same connections before.
  bool AllHaveBegun() const { return crowd_.begun.load() == answered_; }
  std::string Standing() const {
    return fmt::format("{} of {} were answered, {} ended", crowd_.begun.load(), answered_,
                       crowd_.ended.load());
  }
  // False when some do not end.
  bool End() {
    for (const auto& let_go : let_go_) let_go();
    return WaitFor([&] { return crowd_.ended.load() == static_cast<int>(let_go_.size()); }, kPatience);
  }

 private:
  template <class Call>
  Call* Hold(Call* call) {
    let_go_.push_back([call] { call->LetGo(); });
    return call;
  }
  void Watch(grpc::health::v1::Health::Stub* stub) {
    using Response = grpc::health::v1::HealthCheckResponse;
    auto* call = Hold(new HeldCall<grpc::ClientReadReactor<Response>, Response>(&crowd_, /*reads_on=*/true));
    stub->async()->Watch(&call->context, &everything_, call);
    call->Begin();
    ++answered_;
  }
  void Upload(v1::Sessions::Stub* stub) {
    auto* call = Hold(new HeldCall<grpc::ClientWriteReactor<v1::ImportSessionRequest>, v1::Session>(
        &crowd_, /*reads_on=*/false));
    stub->async()->ImportSession(&call->context, &call->message, call);
    call->Begin();
  }
  void Turn(v1::Generation::Stub* stub) {
    using Response = v1::GenerateResponse;
    auto* call = Hold(new HeldCall<grpc::ClientReadReactor<Response>, Response>(&crowd_, /*reads_on=*/false));
    stub->async()->Generate(&call->context, &turn_, call);
    call->Begin();
    ++answered_;
  }

  const v1::GenerateRequest turn_;
  const grpc::health::v1::HealthCheckRequest everything_;
  Crowd crowd_;
  int answered_ = 0;
  std::vector<std::unique_ptr<grpc::health::v1::Health::Stub>> health_;
  std::vector<std::unique_ptr<v1::Sessions::Stub>> sessions_;
  std::vector<std::unique_ptr<v1::Generation::Stub>> generation_;
  std::vector<std::function<void()>> let_go_;
};

TEST_F(ConnectionFaults, TenThousandIdleStreams) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "this test's own reactors pass between threads under gRPC's locks, which ThreadSanitizer "
                  "does not see";
#endif
  StartServer();
  const v1::GenerateRequest request = Request(kTwins[0], 10);
  Endure([&] {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < 20; ++i) channels.push_back(NewChannel());
    IdleStreams streams(channels, Many(10'000), request);
    EXPECT_TRUE(WaitFor([&] { return streams.AllHaveBegun(); }, kPatience)) << streams.Standing();
    ExpectServed();
    EXPECT_TRUE(streams.End());
  });
  StopServer();
}

// From a clock's beat, whatever became of those before: every fourth says nothing, every fourth half of the
// preface, every fourth what is no HTTP/2, and every fourth is reset.
TEST_F(ConnectionFaults, AThousandConnectsASecond) {
  StartServer();
  Endure([&] {
    std::atomic<int> refused{0};
    std::thread crowd([&] {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < Many(2000); ++i) {
        std::this_thread::sleep_until(begin + std::chrono::milliseconds(i));
        RawConnection connection(port());
        if (!connection.connected()) {
          refused.fetch_add(1);
          continue;
        }
        if (i % 4 == 1) connection.Send(kPreface.substr(0, 12));
        if (i % 4 == 2) connection.Send("GET / HTTP/1.1\r\n\r\n");
        if (i % 4 == 3) connection.Reset();
      }
    });
    for (int i = 0; i < 10; ++i) ExpectServed();
    crowd.join();
    EXPECT_EQ(refused.load(), 0);
  });
  StopServer();
}

}  // namespace
}  // namespace weir::testing
