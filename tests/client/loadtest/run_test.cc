// A whole load test in virtual time: which models and phases it has, and what the verdict is.
#include "client/loadtest/run.h"

#include <vector>

#include "client/rpc_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "tests/client/loadtest/scripted_transport.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScriptedTransport;
using testing::ScriptedTurn;
using testing::SimulatedLoop;

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    AddModel("linear", "linear_attention");
    AddModel("two-a", "mamba");
    AddModel("two-b", "mamba");
    AddModel("soft", "softmax");
    server_.turn = [this](const TurnRequest& request, int64_t) {
      ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), 5);
      for (v1::ModelUse& use : *server_.info.mutable_models())
        if (use.model().name() == "models/" + request.model)
          use.set_generated_tokens(use.generated_tokens() + 5);
      return turn;
    };
    options_.phase.duration = absl::Seconds(2);
    options_.workload.prompt_tokens = options_.workload.output_tokens = {LengthSpec::Kind::kFixed, 5, 5};
    options_.concurrency = {2};
  }
  void AddModel(const std::string& name, const std::string& mixer) {
    v1::Model* model = server_.info.add_models()->mutable_model();
    model->set_name("models/" + name);
    model->set_mixer(mixer);
    model->set_vocab_size(10);
    model->set_has_tokenizer(name != "soft");
  }
  std::string ErrorOf() {
    const auto outcome = RunLoadtest(options_, hooks_, &loop_, &server_);
    return outcome.ok() ? "" : std::string(outcome.status().message());
  }
  LoadtestOutcome Run() {
    auto outcome = RunLoadtest(options_, hooks_, &loop_, &server_);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *std::move(outcome) : LoadtestOutcome();
  }

  SimulatedLoop loop_;
  ScriptedTransport server_{&loop_};
  LoadtestOptions options_;
  LoadtestHooks hooks_;
};

TEST_F(RunTest, ComparesModelsInTurnOverTheSweepOnEqualTerms) {
  options_.compare = {"models/soft", "linear"};
  options_.concurrency = {1, 4};
  std::vector<std::string> phases;
  hooks_.live = [&](const std::string& phase, const std::vector<LiveRow>&, bool ended) {
    if (ended) phases.push_back(phase);
  };
  const LoadtestOutcome outcome = Run();
  EXPECT_TRUE(outcome.ended_early.ok());
  EXPECT_TRUE(VerdictOf(outcome.report).ok());
  EXPECT_THAT(phases,
              ElementsAre("soft, 1 at once", "soft, 4 at once", "linear, 1 at once", "linear, 4 at once"));
  ASSERT_EQ(outcome.report.models.size(), 2u);
  EXPECT_EQ(outcome.report.models[0].name, "soft");
  EXPECT_EQ(outcome.report.models[1].mixer, "linear_attention");
  for (const ModelReport& model : outcome.report.models) {
    ASSERT_EQ(model.traffic.size(), 2u);
    EXPECT_EQ(model.traffic[0].concurrency, 1);
    EXPECT_EQ(model.traffic[1].concurrency, 4);
    for (const TrafficFigures& figures : model.traffic)
      EXPECT_EQ(figures.server_generated_tokens, figures.all_generated_tokens);
  }
  EXPECT_EQ(outcome.report.models[0].traffic[1].completed, outcome.report.models[1].traffic[1].completed);
  EXPECT_TRUE(outcome.report.mixed.empty());
}

TEST_F(RunTest, SeveralModelsAreMixedByWeight) {
  options_.models = {{"linear", 3}, {"soft", 1}};
  options_.rates = {100};
  options_.open_arrivals = ArrivalKind::kConstant;
  const LoadtestOutcome outcome = Run();
  ASSERT_EQ(outcome.report.mixed.size(), 1u);
  const MixedFigures& mixed = outcome.report.mixed[0];
  EXPECT_EQ(mixed.all.completed, 200);
  EXPECT_EQ(mixed.models.at("linear").completed + mixed.models.at("soft").completed, 200);
  EXPECT_GT(mixed.models.at("linear").completed, mixed.models.at("soft").completed);
  EXPECT_EQ(mixed.all.server_generated_tokens, 1000);
  EXPECT_TRUE(outcome.report.models[0].traffic.empty());
}

TEST_F(RunTest, ModelsThatAreNotThereAreNamedWithThoseThatAre) {
  EXPECT_THAT(ErrorOf(), HasSubstr("name a model with -m"));
  options_.models = {{"nope", 1}};
  EXPECT_EQ(ErrorOf(),
            "'nope' is not served here; this server has linear (linear_attention), two-a (mamba), two-b "
            "(mamba), soft (softmax)");
  options_.models = {{"soft", 1}, {"models/soft", 1}};
  EXPECT_THAT(ErrorOf(), HasSubstr("'soft' is named twice"));
  options_.models.clear();
  options_.compare = {"linear", "mamba"};
  EXPECT_THAT(ErrorOf(), HasSubstr("2 models here have the mixer 'mamba', so name one"));
  options_.compare = {"soft"};
  options_.workload.prompts = {"text"};
  EXPECT_THAT(ErrorOf(), HasSubstr("'soft' has no tokenizer"));
  server_.server_info_status = absl::UnavailableError("gone");
  EXPECT_EQ(ErrorOf(), "gone");
  EXPECT_TRUE(server_.requests.empty());
}

TEST_F(RunTest, LTG_05_EmptyStreamsFailTheTestIfAsked) {
  options_.models = {{"linear", 1}};
  server_.turn = [](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), 5);
    if (number % 10 == 9) turn.messages.clear();
    return turn;
  };
  options_.phase.conversations = 30;
  EXPECT_TRUE(VerdictOf(Run().report).ok());
  options_.fail_on_empty = true;
  server_.requests.clear();
  EXPECT_EQ(VerdictOf(Run().report).message(),
            "the load test did not pass: linear, 2 at once: 3 streams of 30 ended without a token "
            "(--fail-on-empty)");
}

TEST_F(RunTest, ErrorsFailTheTestIfAskedAndWhenNothingElseCame) {
  options_.models = {{"linear", 1}};
  options_.phase.conversations = 10;
  int64_t good = 5;
  server_.turn = [&](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), 5);
    if (number >= good) turn.status = MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "full");
    return turn;
  };
  EXPECT_TRUE(VerdictOf(Run().report).ok());
  server_.requests.clear();
  options_.fail_on_error = true;
  EXPECT_THAT(std::string(VerdictOf(Run().report).message()),
              HasSubstr("5 requests of 10 failed (--fail-on-error)"));
  server_.requests.clear();
  options_.fail_on_error = false;
  good = 0;
  const absl::Status verdict = VerdictOf(Run().report);
  EXPECT_THAT(std::string(verdict.message()), HasSubstr("no request of 10 was completed"));
  EXPECT_EQ(GetErrorDetails(verdict).reason, "LOADTEST_FAILED");
}

TEST_F(RunTest, AnInterruptEndsTheRunAndKeepsWhatWasMeasured) {
  options_.compare = {"linear", "soft"};
  options_.phase.duration = absl::Seconds(60);
  hooks_.interrupted = [this] { return loop_.Now() >= absl::Seconds(90); };
  const LoadtestOutcome outcome = Run();
  EXPECT_EQ(outcome.ended_early.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(outcome.report.models[0].traffic[0].seconds, 60);
  EXPECT_NEAR(outcome.report.models[1].traffic[0].seconds, 30, 0.2);
  EXPECT_THAT(outcome.report.failures, ElementsAre(HasSubstr("soft, 2 at once: interrupted")));
  EXPECT_LT(loop_.Now(), absl::Seconds(91));
}

TEST_F(RunTest, ALostServerEndsTheRunAndFailsIt) {
  options_.compare = {"linear", "soft"};
  const absl::Status broken =
      MakeError(absl::StatusCode::kUnavailable, kConnectionLost, "lost the connection");
  server_.turn = [&](const TurnRequest&, int64_t number) {
    ScriptedTurn turn = ScriptedTurn::Even(absl::Milliseconds(10), absl::Milliseconds(10), 5);
    if (number == 20) server_.server_info_status = turn.status = broken;
    return turn;
  };
  const LoadtestOutcome outcome = Run();
  // 22 turns of two users, 50 ms each; one of them broke off with its last token.
  EXPECT_THAT(
      outcome.report.failures,
      ElementsAre(HasSubstr("linear, 2 at once: lost the connection after 0.6 s; up to then 21 requests were "
                            "completed and 110 tokens came, and what would have come after it was not")));
  EXPECT_EQ(outcome.ended_early.message(), outcome.report.failures.back());
  EXPECT_EQ(GetErrorDetails(outcome.ended_early).reason, kConnectionLost);
  EXPECT_EQ(outcome.ended_early.code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(outcome.report.models[0].traffic[0].completed, 19);
  EXPECT_TRUE(outcome.report.models[1].traffic.empty());
}

}  // namespace
}  // namespace weir
