// What the load test itself costs: its driver and transport against a gRPC server of prepared messages, one
// token each, in a process of its own, so that the processor time counted here is the load test's alone.
//
// `interval_us`: how often the server writes a message to every stream, as the steps of an engine do; with 0
// it writes the next one as soon as the last one is done, and both processes share the machine's processors.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>

#include "benchmark/benchmark.h"
#include "client/loadtest/grpc_transport.h"
#include "client/loadtest/run.h"
#include "fmt/format.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/check.h"
#include "runtime/base/mutex.h"
#include "weir/v1/generation.grpc.pb.h"
#include "weir/v1/server_info.grpc.pb.h"

namespace weir::bench {
namespace {

class EvenService;

// prompt_info, max_tokens deltas of one token, finish.
class EvenStream final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  EvenStream(EvenService* service, int64_t tokens, bool paced);
  void OnWriteDone(bool ok) override;
  void OnDone() override;
  // Writes the next message unless the last one is still on its way.
  void Step() {
    if (!writing_.exchange(true)) WriteNext();
  }

 private:
  void WriteNext();

  EvenService* const service_;
  const int64_t tokens_;
  const bool paced_;
  int64_t sent_ = 0;
  std::atomic<bool> writing_{true};
  v1::GenerateResponse message_;
};

class EvenService final : public v1::Generation::CallbackService {
 public:
  explicit EvenService(int interval_us) : interval_us_(interval_us) {
    if (interval_us > 0) std::thread(&EvenService::Pace, this).detach();  // until the process is killed
  }
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* /*context*/,
                                                           const v1::GenerateRequest* request) override {
    auto* const stream = new EvenStream(this, request->stop().max_tokens(), interval_us_ > 0);
    if (interval_us_ > 0) {
      const MutexLock lock(&mu_);
      streams_.insert(stream);
    }
    return stream;
  }
  void Remove(EvenStream* stream) {
    const MutexLock lock(&mu_);
    streams_.erase(stream);
  }

 private:
  void Pace() {
    for (auto next = std::chrono::steady_clock::now();;) {
      next += std::chrono::microseconds(interval_us_);
      std::this_thread::sleep_until(next);
      const MutexLock lock(&mu_);
      for (EvenStream* stream : streams_) stream->Step();
    }
  }

  const int interval_us_;
  Mutex mu_;
  std::unordered_set<EvenStream*> streams_;
};

EvenStream::EvenStream(EvenService* service, int64_t tokens, bool paced)
    : service_(service), tokens_(tokens), paced_(paced) {
  message_.mutable_prompt_info()->set_prompt_tokens(1);
  StartWrite(&message_);
}

void EvenStream::OnWriteDone(bool ok) {
  if (!ok || sent_ > tokens_) return Finish(ok ? grpc::Status::OK : grpc::Status::CANCELLED);
  if (!paced_ || sent_ == tokens_) return WriteNext();
  writing_ = false;
}

void EvenStream::OnDone() {
  service_->Remove(this);
  delete this;
}

void EvenStream::WriteNext() {
  message_.Clear();
  if (sent_ < tokens_) {
    message_.mutable_delta()->set_position(1 + sent_);
    message_.mutable_delta()->add_token_ids(100);
    message_.mutable_delta()->set_text(" word");
  } else {
    message_.mutable_finish()->mutable_usage()->set_generated_tokens(tokens_);
  }
  ++sent_;
  StartWrite(&message_);
}

// Without counters, which the load test leaves out then.
class EvenInfo final : public v1::Server::CallbackService {
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* /*request*/,
                                          v1::ServerInfo* info) override {
    v1::Model* const model = info->add_models()->mutable_model();
    model->set_name("models/even");
    model->set_vocab_size(1000);
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// In the child: serves until it is killed, after writing its port.
[[noreturn]] void Serve(int interval_us, int port_fd) {
  EvenService generation(interval_us);
  EvenInfo info;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&generation);
  builder.RegisterService(&info);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  WEIR_CHECK(write(port_fd, &port, sizeof(port)) == sizeof(port));
  server->Wait();
  _exit(0);
}

// A server process; before this process has used gRPC, which does not survive a fork.
class EvenServer {
 public:
  explicit EvenServer(int interval_us) {
    int ends[2];
    WEIR_CHECK(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) Serve(interval_us, ends[1]);
    WEIR_CHECK(read(ends[0], &port_, sizeof(port_)) == sizeof(port_));
    close(ends[0]);
    close(ends[1]);
  }
  ~EvenServer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void Measure(benchmark::State& state, const EvenServer& server) {
  const int64_t streams = state.range(0);
  RealLoop loop;
  auto transport = ConnectGrpcTransport(
      {.address = server.address(), .tls = {}, .api_key = "", .connect_timeout = absl::Seconds(30)}, &loop,
      nullptr);
  WEIR_CHECK(transport.ok());
  LoadtestOptions options;
  options.concurrency = {streams};
  options.phase.duration = absl::Seconds(4);
  options.workload.prompt_tokens = {LengthSpec::Kind::kFixed, 1, 1};
  options.workload.output_tokens = {LengthSpec::Kind::kFixed, 200, 200};
  for (auto _ : state) {
    const double before = ProcessorSeconds();
    const absl::StatusOr<LoadtestOutcome> outcome = RunLoadtest(options, {}, &loop, transport->get());
    const double used = ProcessorSeconds() - before;
    WEIR_CHECK(outcome.ok());
    const TrafficFigures& figures = outcome->report.models[0].traffic[0];
    WEIR_CHECK(figures.failed == 0 && figures.completed > 0);
    state.SetIterationTime(figures.seconds);
    state.counters["tokens/s"] = figures.tokens_per_second.value_or(0);
    state.counters["cores"] = used / (figures.seconds + figures.drain_seconds);
    state.counters["us_a_token"] = used * 1e6 / static_cast<double>(figures.all_generated_tokens);
    state.counters["itl_p50_ms"] = figures.itl_ms.p50;
    state.counters["itl_p99_ms"] = figures.itl_ms.p99;
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // Servers first, as they fork.
  std::vector<std::unique_ptr<weir::bench::EvenServer>> servers;
  for (const int interval_us : {0, 100'000, 25'000, 10'000}) {
    servers.push_back(std::make_unique<weir::bench::EvenServer>(interval_us));
    benchmark::RegisterBenchmark(
        fmt::format("Loadtest/interval_us:{}", interval_us).c_str(),
        [server = servers.back().get()](benchmark::State& state) { weir::bench::Measure(state, *server); })
        ->ArgName("streams")
        ->Arg(256)
        ->Iterations(1)
        ->UseManualTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
