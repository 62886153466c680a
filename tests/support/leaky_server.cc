// A server whose model "leaky" keeps, in memory that it has touched, so many bytes of each token that it
// computes: what a load test has to find. Beside it "sound", the same without.
//
//     weir-server-leaky BYTES_PER_TOKEN        prints "ready 127.0.0.1:PORT", and serves until SIGTERM
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>

#include "tests/support/server_fixture.h"

namespace weir::testing {
namespace {

// Owned by the engine, whose thread alone calls Forward. A deque gives its memory block by block, so that
// what is kept grows as the tokens do, and not by doubling.
class LeakyModel final : public LanguageModel {
 public:
  explicit LeakyModel(int bytes_per_token)
      : model_({.vocab_size = kByteVocab}), bytes_per_token_(bytes_per_token) {}
  int32_t vocab_size() const override { return model_.vocab_size(); }
  int64_t context_limit() const override { return model_.context_limit(); }
  std::vector<StateSpec> States() const override { return model_.States(); }
  PagedSpec Paged() const override { return model_.Paged(); }
  int prefill_granule() const override { return model_.prefill_granule(); }
  TokenCost token_cost() const override { return model_.token_cost(); }
  int64_t WorkspaceBytes(int tokens, int logits, int64_t positions, int threads) const override {
    return model_.WorkspaceBytes(tokens, logits, positions, threads);
  }
  void Forward(const StepInput& input, const StepState& state, TensorView logits, Workspace& workspace,
               Stream& stream) const override {
    model_.Forward(input, state, logits, workspace, stream);
    const int64_t bytes = input.token_ids.dim(0) * bytes_per_token_;
    for (int64_t i = 0; i < bytes; ++i) kept_.push_back(static_cast<char>(i));
  }

 private:
  const FakeModel model_;
  const int bytes_per_token_;
  mutable std::deque<char> kept_;
};

ServedModel Serve(const std::string& name, int bytes_per_token) {
  ServedModel served = MakeServedFake(name, {}, {.slots = 64, .max_step_tokens = 512});
  served.engine.model = std::make_shared<LeakyModel>(bytes_per_token);
  return served;
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "weir-server-leaky: give the bytes that are kept of each token\n");
    return 2;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::vector<ServedModel> models;
  models.push_back(Serve("leaky", std::atoi(argv[1])));
  models.push_back(Serve("sound", 0));
  const ServerFixture server(std::move(models));
  std::printf("ready %s\n", server.address().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return 0;
}

}  // namespace
}  // namespace weir::testing

int main(int argc, char** argv) { return weir::testing::Main(argc, argv); }
