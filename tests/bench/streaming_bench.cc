// Streaming through the whole server with a model that costs next to nothing, against a bare gRPC callback
// stream of the same messages: same process, same clients, same number of connections, in alternation.
//
// The server makes one message of all tokens that wait when a write is done. For one token a message,
// EngineOptions::max_tokens_waiting is 1: a turn pauses until its token is taken, so the model makes the next
// one while a message is being written, and never two. `step_us` is slept in each step, as a real model takes
// time: with none, the engine makes many small steps. The coalesced rate is that of the default options.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "benchmark/benchmark.h"
#include "fmt/format.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/server_builder.h"
#include "runtime/base/check.h"
#include "tests/bench/machine_limits.h"
#include "tests/support/server_fixture.h"

namespace weir::bench {
namespace {

constexpr int kMaxStreams = 256;

int NumChannels(int64_t streams) { return static_cast<int>(std::max<int64_t>(1, streams / 32)); }
int64_t TokensPerStream(int64_t streams) { return std::max<int64_t>(400, 32'000 / streams); }

// Writes the same delta max_tokens times, each write as soon as the last one is done.
class BareReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  BareReactor(const v1::GenerateResponse* message, int64_t count) : message_(message), left_(count) {
    Write();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (left_ > 0) Write();
  }
  void OnDone() override { delete this; }

 private:
  void Write() {
    if (--left_ > 0)
      StartWrite(message_);
    else
      StartWriteAndFinish(message_, {}, grpc::Status::OK);
  }
  const v1::GenerateResponse* const message_;
  int64_t left_;
};

class BareService final : public v1::Generation::CallbackService {
 public:
  // Of `bytes` bytes, as a delta in mid-stream is.
  void SetMessageBytes(size_t bytes) {
    message_.mutable_delta()->set_position(1000);
    message_.mutable_delta()->add_token_ids(100);
    while (message_.ByteSizeLong() < bytes) message_.mutable_delta()->mutable_text()->push_back('a');
  }
  size_t message_bytes() const { return message_.ByteSizeLong(); }
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext* /*context*/,
                                                           const v1::GenerateRequest* request) override {
    return new BareReactor(&message_, request->stop().max_tokens());
  }

 private:
  v1::GenerateResponse message_;
};

// What the clients of one round saw.
struct Round {
  double seconds = 0;  // from the first call's start to the last one's end
  int64_t tokens = 0;
  int64_t messages = 0;             // that carried tokens
  int64_t bytes = 0;                // of these
  std::vector<double> first_token;  // seconds, one per stream

  void Add(const Round& other) {
    tokens += other.tokens;
    messages += other.messages;
    bytes += other.bytes;
  }
};

class Client final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  explicit Client(std::atomic<int>* running) : running_(*running) {}
  void Start(v1::Generation::Stub* stub, const v1::GenerateRequest& request) {
    start_ = Clock::now();
    stub->async()->Generate(&context_, &request, this);
    StartRead(&message_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (const int tokens = message_.delta().token_ids_size(); tokens > 0) {
      if (tokens_ == 0) first_token_ = SecondsSince(start_);
      tokens_ += tokens;
      ++messages_;
      bytes_ += static_cast<int64_t>(message_.ByteSizeLong());
    }
    StartRead(&message_);
  }
  void OnDone(const grpc::Status& status) override {
    WEIR_CHECK(status.ok());
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
  void AddTo(Round* round) const {
    round->tokens += tokens_;
    round->messages += messages_;
    round->bytes += bytes_;
    round->first_token.push_back(first_token_);
  }

 private:
  std::atomic<int>& running_;
  grpc::ClientContext context_;
  v1::GenerateResponse message_;
  Clock::time_point start_;
  double first_token_ = 0;
  int64_t tokens_ = 0, messages_ = 0, bytes_ = 0;
};

class World {
 public:
  World() : coalescing_(Models(), {}), one_token_(Models(), OneToken()) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&bare_service_);
    bare_server_ = builder.BuildAndStart();
    WEIR_CHECK(bare_server_ != nullptr);
    for (int i = 0; i < NumChannels(kMaxStreams); ++i) {
      coalescing.push_back(v1::Generation::NewStub(coalescing_.NewChannel()));
      one_token.push_back(v1::Generation::NewStub(one_token_.NewChannel()));
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      bare.push_back(v1::Generation::NewStub(grpc::CreateCustomChannel(
          fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), own)));
    }
    // Connects all channels, and tells how large the server's deltas are.
    Run(coalescing, kMaxStreams, 10);
    const Round round = Run(one_token, kMaxStreams, 300);
    bare_service_.SetMessageBytes(static_cast<size_t>(round.bytes / round.messages));
    Run(bare, kMaxStreams, 10);
  }
  ~World() { bare_server_->Shutdown(std::chrono::system_clock::now()); }

  using Stubs = std::vector<std::unique_ptr<v1::Generation::Stub>>;
  Stubs coalescing, one_token, bare;
  std::atomic<int64_t> step_us{0};

  // `streams` calls of `tokens` tokens each, started at once.
  static Round Run(const Stubs& stubs, int64_t streams, int64_t tokens) {
    const v1::GenerateRequest request = testing::GreedyRequest({1}, tokens);
    const int channels = NumChannels(streams);
    std::atomic<int> running{static_cast<int>(streams)};
    std::vector<std::unique_ptr<Client>> clients;
    for (int64_t i = 0; i < streams; ++i) clients.push_back(std::make_unique<Client>(&running));
    const auto start = Clock::now();
    for (int64_t i = 0; i < streams; ++i) clients[i]->Start(stubs[i % channels].get(), request);
    for (int left = running; left > 0; left = running) running.wait(left);
    Round round;
    round.seconds = SecondsSince(start);
    for (const auto& client : clients) client->AddTo(&round);
    WEIR_CHECK(round.tokens == streams * tokens);
    return round;
  }

 private:
  std::vector<testing::ServedModel> Models() {
    RunnerLimits limits;
    limits.slots = kMaxStreams;
    limits.max_step_seqs = kMaxStreams + 64;
    std::shared_ptr<testing::FakeModel> fake;
    std::vector<testing::ServedModel> models;
    models.push_back(testing::MakeServedFake("fake", {}, limits, &fake));
    fake->on_step = [this](const StepInput&, const StepState&) {
      if (const int64_t us = step_us; us > 0) absl::SleepFor(absl::Microseconds(us));
    };
    return models;
  }
  static testing::FixtureOptions OneToken() {
    testing::FixtureOptions options;
    options.engine.max_tokens_waiting = 1;
    return options;
  }

  testing::ServerFixture coalescing_, one_token_;
  BareService bare_service_;
  std::unique_ptr<grpc::Server> bare_server_;
};

World& TheWorld() {
  static World world;
  return world;
}

struct Best {
  double ratio = 0;
  int64_t step_us = 0;
};
std::map<int64_t, Best> best_of_streams;

// Arguments: streams, step_us. Counters: messages/s of both and their ratio (aim at one token a message: at
// least 0.5), tokens a message, tokens/s, message bytes of both, and the time to the first token of streams
// that all start at once and go on (p99 of both in milliseconds, and their ratio).
void Stream(benchmark::State& state, World::Stubs World::*stubs) {
  const int64_t streams = state.range(0), tokens = TokensPerStream(streams);
  World& world = TheWorld();
  world.step_us = state.range(1);
  std::vector<double> rates, bare_rates, token_rates, first, bare_first;
  Round all, all_bare;
  for (auto _ : state) {
    const Round round = World::Run(world.*stubs, streams, tokens);
    const Round bare = World::Run(world.bare, streams, tokens);
    state.SetIterationTime(round.seconds);
    rates.push_back(static_cast<double>(round.messages) / round.seconds);
    token_rates.push_back(static_cast<double>(round.tokens) / round.seconds);
    bare_rates.push_back(static_cast<double>(bare.messages) / bare.seconds);
    first.insert(first.end(), round.first_token.begin(), round.first_token.end());
    bare_first.insert(bare_first.end(), bare.first_token.begin(), bare.first_token.end());
    all.Add(round);
    all_bare.Add(bare);
  }
  world.step_us = 0;
  const double rate = Quantile(&rates, 0.5), bare_rate = Quantile(&bare_rates, 0.5);
  state.counters["messages/s"] = rate;
  state.counters["bare_messages/s"] = bare_rate;
  state.counters["ratio"] = rate / bare_rate;
  state.counters["tokens_a_message"] = static_cast<double>(all.tokens) / static_cast<double>(all.messages);
  state.counters["tokens/s"] = Quantile(&token_rates, 0.5);
  state.counters["bytes"] = static_cast<double>(all.bytes) / static_cast<double>(all.messages);
  state.counters["bare_bytes"] = static_cast<double>(all_bare.bytes) / static_cast<double>(all_bare.messages);
  const double first_p99 = Quantile(&first, 0.99), bare_first_p99 = Quantile(&bare_first, 0.99);
  state.counters["first_p99_ms"] = first_p99 * 1e3;
  state.counters["bare_first_p99_ms"] = bare_first_p99 * 1e3;
  state.counters["first_p99_ratio"] = first_p99 / bare_first_p99;
}

void BM_OneTokenAMessage(benchmark::State& state) {
  Stream(state, &World::one_token);
  WEIR_CHECK(state.counters["tokens_a_message"] <
             1.05);  // the cap may be overstepped when a stream has just been emptied
  Best& best = best_of_streams[state.range(0)];
  if (const double ratio = state.counters["ratio"]; ratio > best.ratio) best = {ratio, state.range(1)};
}
void StreamArgs(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"streams", "step_us"})->Iterations(5)->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_OneTokenAMessage)->Apply(StreamArgs)->Args({1, 0})->ArgsProduct({{64, 256}, {0, 50}});

void BM_Coalesced(benchmark::State& state) { Stream(state, &World::coalescing); }
BENCHMARK(BM_Coalesced)->Apply(StreamArgs)->ArgsProduct({{1, 64, 256}, {0}});

// Argument: calls of one token each that start at once, on open connections, with the default options.
// Counters: milliseconds from the start of the call to the token, and the ratio of the p99 (aim: at
// most 1.5).
void BM_TimeToFirstToken(benchmark::State& state) {
  const int64_t streams = state.range(0);
  World& world = TheWorld();
  std::vector<double> weir, bare;
  for (auto _ : state) {
    const Round round = World::Run(world.coalescing, streams, 1);
    const Round bare_round = World::Run(world.bare, streams, 1);
    weir.insert(weir.end(), round.first_token.begin(), round.first_token.end());
    bare.insert(bare.end(), bare_round.first_token.begin(), bare_round.first_token.end());
    state.SetIterationTime(round.seconds);
  }
  for (const auto& [name, q] : {std::pair("p50", 0.5), {"p99", 0.99}}) {
    const double a = Quantile(&weir, q), b = Quantile(&bare, q);
    state.counters[fmt::format("{}_ms", name)] = a * 1e3;
    state.counters[fmt::format("bare_{}_ms", name)] = b * 1e3;
    state.counters[fmt::format("{}_ratio", name)] = a / b;
  }
}
BENCHMARK(BM_TimeToFirstToken)->ArgName("streams")->Arg(1)->Iterations(1000)->UseManualTime();
BENCHMARK(BM_TimeToFirstToken)->ArgName("streams")->Arg(64)->Iterations(40)->UseManualTime();
BENCHMARK(BM_TimeToFirstToken)->ArgName("streams")->Arg(256)->Iterations(15)->UseManualTime();

void PrintBest() {
  for (const auto& [streams, best] : best_of_streams)
    fmt::print("{} streams, one token a message: {:.2f} of the bare messages/s, with {} us a step\n", streams,
               best.ratio, best.step_us);
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  weir::bench::PrintBest();
  return 0;
}
