// Streaming through the whole server with a model that costs next to nothing, against a bare gRPC callback
// stream of the same messages: same process, same clients, same number of connections, in alternation.
//
// The server makes one message of all tokens that wait when a write is done. To get one token a message, the
// model must not outrun the writer, so a step begins only when the clients hold the tokens of all steps but
// the last `window` - 1: window 1 is lock-step, and a larger one lets messages overlap until tokens pile up.
// Every line shows how many tokens its messages carried; "one token a message" means at most 1.05. Window 0
// is no limit: the coalesced rate.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
constexpr double kOneToken = 1.05;

int NumChannels(int64_t streams) { return static_cast<int>(std::max<int64_t>(1, streams / 32)); }
int64_t TokensPerStream(int64_t streams) { return std::max<int64_t>(400, 32'000 / streams); }

// Holds the model back until the clients have what they are to have. BeforeStep: engine thread; Received:
// any.
class Pace {
 public:
  void Reset(int64_t window) {
    const std::lock_guard lock(mu_);
    window_ = window;
    pushed_.assign(1, 0);
    received_ = 0;
  }
  void BeforeStep(int64_t tokens) {
    std::unique_lock lock(mu_);
    if (window_ == 0) return;
    const int64_t steps = std::ssize(pushed_) - 1;
    const int64_t needed = pushed_[static_cast<size_t>(std::max<int64_t>(0, steps + 1 - window_))];
    pushed_.push_back(pushed_.back() + tokens);
    wanted_ = needed;
    WEIR_CHECK(enough_.wait_for(lock, std::chrono::seconds(30), [&] { return received_ >= needed; }));
    wanted_ = kNobodyWaits;
  }
  void Received(int64_t tokens) {
    if (received_.fetch_add(tokens) + tokens < wanted_) return;
    { const std::lock_guard lock(mu_); }
    enough_.notify_one();
  }

 private:
  static constexpr int64_t kNobodyWaits = int64_t{1} << 62;
  std::mutex mu_;
  std::condition_variable enough_;
  int64_t window_ = 0;
  std::vector<int64_t> pushed_;  // in total before each step
  std::atomic<int64_t> received_{0};
  std::atomic<int64_t> wanted_{kNobodyWaits};
};

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
};

class Client final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Client(Pace* pace, std::atomic<int>* running) : pace_(*pace), running_(*running) {}
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
      pace_.Received(tokens);
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
  Pace& pace_;
  std::atomic<int>& running_;
  grpc::ClientContext context_;
  v1::GenerateResponse message_;
  Clock::time_point start_;
  double first_token_ = 0;
  int64_t tokens_ = 0, messages_ = 0, bytes_ = 0;
};

class World {
 public:
  World() : weir_(Models(), Options()) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&bare_service_);
    bare_ = builder.BuildAndStart();
    WEIR_CHECK(bare_ != nullptr);
    for (int i = 0; i < NumChannels(kMaxStreams); ++i) {
      weir_stubs_.push_back(v1::Generation::NewStub(weir_.NewChannel()));
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      bare_stubs_.push_back(v1::Generation::NewStub(grpc::CreateCustomChannel(
          fmt::format("127.0.0.1:{}", port), grpc::InsecureChannelCredentials(), own)));
    }
    // Connects all channels, and tells how large the server's deltas are.
    const Round round = Weir(kMaxStreams, 300, 1);
    bare_service_.SetMessageBytes(static_cast<size_t>(round.bytes / round.messages));
    Bare(kMaxStreams, 10);
  }
  ~World() { bare_->Shutdown(absl::ToChronoTime(absl::Now())); }

  Round Weir(int64_t streams, int64_t tokens, int64_t window) {
    pace_.Reset(window);
    return Run(weir_stubs_, streams, tokens);
  }
  Round Bare(int64_t streams, int64_t tokens) {
    pace_.Reset(0);
    return Run(bare_stubs_, streams, tokens);
  }

 private:
  using Stubs = std::vector<std::unique_ptr<v1::Generation::Stub>>;

  std::vector<testing::ServedModel> Models() {
    RunnerLimits limits;
    limits.slots = kMaxStreams;
    limits.max_step_seqs = kMaxStreams + 64;
    std::shared_ptr<testing::FakeModel> fake;
    std::vector<testing::ServedModel> models;
    models.push_back(testing::MakeServedFake("fake", {}, limits, &fake));
    fake->on_step = [this](const StepInput& input, const StepState&) {
      pace_.BeforeStep(input.logit_rows.dim(0));
    };
    return models;
  }
  static testing::FixtureOptions Options() {
    testing::FixtureOptions options;
    options.engine.max_tokens_waiting = 1 << 22;  // window 0 outruns the clients by far
    return options;
  }

  Round Run(const Stubs& stubs, int64_t streams, int64_t tokens) {
    const v1::GenerateRequest request = testing::GreedyRequest({1}, tokens);
    const int channels = NumChannels(streams);
    std::atomic<int> running{static_cast<int>(streams)};
    std::vector<std::unique_ptr<Client>> clients;
    for (int64_t i = 0; i < streams; ++i) clients.push_back(std::make_unique<Client>(&pace_, &running));
    const auto start = Clock::now();
    for (int64_t i = 0; i < streams; ++i) clients[i]->Start(stubs[i % channels].get(), request);
    for (int left = running; left > 0; left = running) running.wait(left);
    Round round;
    round.seconds = SecondsSince(start);
    for (const auto& client : clients) client->AddTo(&round);
    WEIR_CHECK(round.tokens == streams * tokens);
    return round;
  }

  Pace pace_;
  testing::ServerFixture weir_;
  BareService bare_service_;
  std::unique_ptr<grpc::Server> bare_;
  Stubs weir_stubs_, bare_stubs_;
};

World& TheWorld() {
  static World world;
  return world;
}

struct Best {
  double ratio = 0, tokens_a_message = 0;
  int64_t window = 0;
};
std::map<int64_t, Best> best_of_streams;

// Arguments: streams, window. Counters: messages/s of both and their ratio (aim: at least 0.5 at one token a
// message), tokens a message, tokens/s, message bytes of both.
void BM_Stream(benchmark::State& state) {
  const int64_t streams = state.range(0), window = state.range(1), tokens = TokensPerStream(streams);
  std::vector<double> rates, bare_rates, token_rates;
  Round all;
  for (auto _ : state) {
    const Round round = TheWorld().Weir(streams, tokens, window);
    const Round bare = TheWorld().Bare(streams, tokens);
    state.SetIterationTime(round.seconds);
    rates.push_back(static_cast<double>(round.messages) / round.seconds);
    token_rates.push_back(static_cast<double>(round.tokens) / round.seconds);
    bare_rates.push_back(static_cast<double>(bare.messages) / bare.seconds);
    all.tokens += round.tokens;
    all.messages += round.messages;
    all.bytes += round.bytes;
    state.counters["bare_bytes"] = static_cast<double>(bare.bytes) / static_cast<double>(bare.messages);
  }
  const double rate = Quantile(&rates, 0.5), bare_rate = Quantile(&bare_rates, 0.5);
  const double tokens_a_message = static_cast<double>(all.tokens) / static_cast<double>(all.messages);
  state.counters["messages/s"] = rate;
  state.counters["bare_messages/s"] = bare_rate;
  state.counters["ratio"] = rate / bare_rate;
  state.counters["tokens_a_message"] = tokens_a_message;
  state.counters["tokens/s"] = Quantile(&token_rates, 0.5);
  state.counters["bytes"] = static_cast<double>(all.bytes) / static_cast<double>(all.messages);
  Best& best = best_of_streams[streams];
  if (tokens_a_message <= kOneToken && rate / bare_rate > best.ratio)
    best = {rate / bare_rate, tokens_a_message, window};
}
BENCHMARK(BM_Stream)
    ->ArgNames({"streams", "window"})
    ->ArgsProduct({{1}, {1, 2, 8, 32, 128, 0}})
    ->ArgsProduct({{64, 256}, {1, 2, 3, 4, 8, 0}})
    ->Iterations(5)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Argument: calls of one token each that start at once, on open connections. Counters: milliseconds from the
// start of the call to the token, and the ratio of the p99 (aim: at most 1.5).
void BM_TimeToFirstToken(benchmark::State& state) {
  const int64_t streams = state.range(0);
  std::vector<double> weir, bare;
  for (auto _ : state) {
    const Round round = TheWorld().Weir(streams, 1, 0);
    const Round bare_round = TheWorld().Bare(streams, 1);
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
    if (best.window > 0)
      fmt::print(
          "{} streams, one token a message: {:.2f} of the bare messages/s (window {}, {:.3f} tokens a "
          "message)\n",
          streams, best.ratio, best.window, best.tokens_a_message);
    else
      fmt::print("{} streams: no window kept to one token a message\n", streams);
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
