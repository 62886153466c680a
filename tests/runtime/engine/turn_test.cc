// Turns through a ModelRunner: what is generated, how it ends, who waits, who is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/runtime/engine/runner_harness.h"
#include "tests/support/fake_model_hash.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

TEST(Turn, GeneratesWhatTheModelSaysWhateverTheChunks) {
  for (const int granule : {1, 4, 16}) {
    for (const int prompt : {1, 3, 4, 5, 17, 100}) {
      RunnerHarness harness({.granule = granule}, {.max_step_tokens = 32});
      std::vector<int32_t> tokens;
      for (int i = 0; i < prompt; ++i) tokens.push_back(i * 5 % 64);
      const Collected got = harness.Run(RunnerHarness::Greedy(tokens, 20));
      EXPECT_EQ(got.ids, FakeModel::Generate(tokens, 20)) << "granule " << granule << " prompt " << prompt;
      EXPECT_EQ(got.first_position, prompt);
      EXPECT_EQ(got.info->prompt_tokens, prompt);
      EXPECT_EQ(got.finish->position, prompt + 20);
      EXPECT_EQ(got.finish->generated_tokens, 20);
    }
  }
}

TEST(Turn, ManyTurnsShareStepsAndGetTheirOwnTokens) {
  RunnerHarness harness({}, {.slots = 20, .max_step_tokens = 24, .max_step_seqs = 16});
  std::vector<std::shared_ptr<TokenStream>> streams;
  std::vector<Collected> got(40);
  for (int i = 0; i < 40; ++i)
    streams.push_back(harness.Submit(RunnerHarness::Greedy({i, i + 1, 2 * i % 64, 3}, 5 + i)));
  while (harness.Step()) {
  }
  for (int i = 0; i < 40; ++i) {
    got[i].Take(streams[i].get());
    EXPECT_EQ(got[i].ids, FakeModel::Generate({i, i + 1, 2 * i % 64, 3}, 5 + i)) << i;
  }
  EXPECT_EQ(harness.sessions().arena().num_free(), 20);
  EXPECT_EQ(harness.runner().outstanding().load(), 0);
}

TEST(Turn, STR_12_ExactlyMaxTokens) {
  for (const int64_t max_tokens : {0, 1, 2, 3}) {
    for (const bool extras : {false, true}) {
      RunnerHarness harness;
      TurnParams params = RunnerHarness::Greedy({1, 2, 3, 4, 5, 6}, max_tokens);
      if (extras) {
        params.sampling.logprobs = true;
        params.stop_strings = std::make_shared<const StopMatcher>(
            *StopMatcher::Create(std::vector<std::string>{"never there"}));
      }
      const Collected got = harness.Run(params);
      ASSERT_TRUE(got.finish);
      EXPECT_EQ(static_cast<int64_t>(got.ids.size()), max_tokens);
      EXPECT_EQ(got.logprobs.size(), extras ? got.ids.size() : 0);
      EXPECT_EQ(got.finish->reason, FinishReason::kMaxTokens);
      EXPECT_EQ(got.finish->position, 6 + max_tokens);
    }
  }
}

// STR-14: usage, delivered ids, logprob entries and the counter agree whatever ends the turn. The rule for a
// stop id and for an end-of-sequence id: it is delivered and counted, and adds no text.
TEST(Turn, STR_14_CountsAgreeWhateverEndsTheTurn) {
  const std::vector<int32_t> prompt = {9, 8, 7};
  const std::vector<int32_t> want = FakeModel::Generate(prompt, 30);
  const FakeText text;
  for (const std::string how : {"eos", "stop id", "stop string", "max_tokens", "cancel"}) {
    FakeModelOptions options;
    if (how == "eos") options.eos_id = want[6];
    RunnerHarness harness(options);
    TurnParams params = RunnerHarness::Greedy(prompt, how == "max_tokens" ? 5 : 30);
    params.sampling.logprobs = true;
    if (how == "stop id") params.stop_ids = {want[6]};
    const std::string stop(text.Piece(want[6], false));
    if (how == "stop string")
      params.stop_strings = std::make_shared<const StopMatcher>(*StopMatcher::Create(std::vector{stop}));
    const auto stream = harness.Submit(params);
    if (how == "cancel") {
      for (int i = 0; i < 5; ++i) harness.Step();
      stream->Cancel();
    }
    const Collected got = harness.Finish(stream);
    EXPECT_EQ(got.ids.size(), got.logprobs.size()) << how;
    EXPECT_EQ(static_cast<int64_t>(got.ids.size()), harness.runner().Stats().generated_tokens) << how;
    if (got.finish) EXPECT_EQ(static_cast<int64_t>(got.ids.size()), got.finish->generated_tokens) << how;
    EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), want.begin())) << how;
    if (how == "eos") EXPECT_EQ(got.finish->reason, FinishReason::kEos);
    if (how == "stop id") EXPECT_EQ(got.finish->reason, FinishReason::kStopToken);
    if (how == "cancel") EXPECT_EQ(got.error->code(), absl::StatusCode::kCancelled);
    std::string expected_text;
    size_t shown = got.ids.size();
    if (how == "eos" || how == "stop id") --shown;
    for (size_t i = 0; i < shown; ++i) expected_text += text.Piece(got.ids[i], false);
    if (how == "stop string") expected_text.resize(expected_text.find(stop));
    EXPECT_EQ(got.text, expected_text) << how;
  }
}

// SMP-15's rules at the engine: several end ids, ignore_eos, min_tokens.
TEST(Turn, SMP_15_EndIdsAreNeverDrawnWhileTheyAreSuppressed) {
  const std::vector<int32_t> prompt = {5};
  const int32_t first = FakeModel::NextToken(prompt, 64);
  RunnerHarness harness({.eos_id = first});
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy(prompt, 20)).finish->reason, FinishReason::kEos);
  TurnParams ignoring = RunnerHarness::Greedy(prompt, 20);
  ignoring.ignore_eos = true;
  Collected got = harness.Run(ignoring);
  EXPECT_EQ(got.ids.size(), 20u);
  EXPECT_EQ(std::count(got.ids.begin(), got.ids.end(), first), 0);
  TurnParams minimum = RunnerHarness::Greedy(prompt, 20);
  minimum.sampling.min_tokens = 8;
  got = harness.Run(minimum);
  EXPECT_GE(got.ids.size(), 8u);
  EXPECT_EQ(std::count(got.ids.begin(), got.ids.begin() + 8, first), 0);
}

TEST(Turn, SCH_01_CancelFreesTheSlotAtTheNextStep) {
  RunnerHarness harness({}, {.slots = 1});
  const auto stream = harness.Submit(RunnerHarness::Greedy({1}, 4096));
  for (int i = 0; i < 3; ++i) harness.Step();
  EXPECT_EQ(harness.sessions().arena().num_free(), 0);
  stream->Cancel();
  EXPECT_FALSE(harness.Step());
  EXPECT_EQ(harness.sessions().arena().num_free(), 1);
  EXPECT_EQ(harness.runner().Stats().generated_tokens, 3);
}

TEST(Turn, SCH_02_CancelDuringAPromptStopsWithinAChunk) {
  RunnerHarness harness({.granule = 64}, {.max_step_tokens = 512});
  ASSERT_TRUE(harness.Create("s").ok());
  const auto stream = harness.Submit(RunnerHarness::Greedy(std::vector<int32_t>(20'000, 7), 5, "s"));
  for (int i = 0; i < 3; ++i) harness.Step();
  stream->Cancel();
  EXPECT_FALSE(harness.Step());
  EXPECT_LE(harness.runner().Stats().prefilled_tokens, 3 * 512);
  // At a chunk border, with the one token pending that keeps the session able to go on.
  EXPECT_EQ(harness.Info("s").position % 64, 1);
  EXPECT_EQ(harness.Info("s").position, harness.runner().Stats().prefilled_tokens + 1);
  const std::vector<int32_t> prefix(harness.Info("s").position, 7);
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 6, "s")).ids, FakeModel::Generate(prefix, 6));
}

TEST(Turn, SCH_03_CancellingAQueuedTurnLeavesTheRunningOneAlone) {
  const std::vector<int32_t> want = FakeModel::Generate({3}, 100);
  for (int round = 0; round < 50; ++round) {
    RunnerHarness harness({}, {.slots = 1});
    const auto a = harness.Submit(RunnerHarness::Greedy({3}, 100));
    for (int i = 0; i < round; ++i) harness.Step();
    const auto b = harness.Submit(RunnerHarness::Greedy({4}, 100));
    harness.Step();
    b->Cancel();
    EXPECT_EQ(harness.Finish(a).ids, want);
    Collected cancelled;
    cancelled.Take(b.get());
    EXPECT_EQ(cancelled.error->code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(cancelled.ids.empty());
  }
}

TEST(Turn, SCH_08_ADeadlineInLineOrMidwayIsNeverASuccess) {
  RunnerHarness harness({}, {.slots = 1});
  const auto a = harness.Submit(RunnerHarness::Greedy({1}, 50));
  TurnParams params = RunnerHarness::Greedy({2}, 10);
  params.deadline = harness.now + absl::Milliseconds(500);
  const auto b = harness.Submit(params);
  harness.Step();
  harness.now += absl::Milliseconds(600);
  harness.Step();
  Collected late;
  late.Take(b.get());
  ASSERT_TRUE(late.error);
  EXPECT_EQ(late.error->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(harness.runner().Stats().prompt_tokens, 1);  // nothing of B was ever computed
  EXPECT_EQ(harness.Finish(a).ids.size(), 50u);

  params.deadline = harness.now + absl::Milliseconds(10);
  params.max_tokens = 1000;
  const auto c = harness.Submit(params);
  harness.Step();
  harness.now += absl::Milliseconds(20);
  const Collected midway = harness.Finish(c);
  ASSERT_TRUE(midway.error);
  EXPECT_EQ(midway.error->code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Turn, ATimeLimitIsANormalFinish) {
  RunnerHarness harness;
  TurnParams params = RunnerHarness::Greedy({1}, 1000);
  params.max_time = absl::Milliseconds(100);
  const auto stream = harness.Submit(params);
  harness.Step();
  harness.now += absl::Milliseconds(150);
  const Collected got = harness.Finish(stream);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.finish->reason, FinishReason::kTimeLimit);
  EXPECT_EQ(got.ids.size(), 1u);
}

TEST(Turn, SCH_11_EachRowKeepsItsOwnBias) {
  RunnerHarness harness({}, {.slots = 64});
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 64; ++i) {
    TurnParams params = RunnerHarness::Greedy({i}, 5 + (i * 13) % 36);
    params.sampling.logit_bias = {{i, 100.0f}};
    streams.push_back(harness.Submit(params));
    harness.Step();
    if (i % 3 == 0 && i > 6) streams[i - 6]->Cancel();
  }
  while (harness.Step()) {
  }
  for (int i = 0; i < 64; ++i) {
    Collected got;
    got.Take(streams[i].get());
    for (const int32_t id : got.ids) EXPECT_EQ(id, i);
    EXPECT_FALSE(got.ids.empty());
  }
}

TEST(Turn, SCH_12_NonFiniteLogitsFailThatTurnOnly) {
  FakeModelOptions options;
  options.poison_id = 63;  // the fake never says it by itself
  RunnerHarness harness(options, {.slots = 3});
  ASSERT_TRUE(harness.Create("s").ok());
  const auto b = harness.Submit(RunnerHarness::Greedy({2}, 20));
  const auto c = harness.Submit(RunnerHarness::Greedy({3}, 20));
  const Collected a = harness.Run(RunnerHarness::Greedy({1, 63}, 20, "s"));
  ASSERT_TRUE(a.error);
  EXPECT_EQ(a.error->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Reason(a), "NONFINITE_LOGITS");
  EXPECT_TRUE(a.ids.empty());
  EXPECT_EQ(harness.Finish(b).ids, FakeModel::Generate({2}, 20));
  EXPECT_EQ(harness.Finish(c).ids, FakeModel::Generate({3}, 20));
  EXPECT_EQ(Reason(harness.Run(RunnerHarness::Greedy({1}, 1, "s"))), "STATE_CORRUPT");
  ASSERT_TRUE(harness.sessions().Delete("s", "", "").ok());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4}, 9)).ids, FakeModel::Generate({4}, 9));
}

TEST(Turn, SCH_12_NonFiniteScoresFailThatTurnOnly) {
  FakeModelOptions options;
  options.poison_id = 63;
  RunnerHarness harness(options, {.slots = 3});
  const auto other = harness.Submit(RunnerHarness::Greedy({2}, 20));
  TurnParams params = RunnerHarness::Greedy({1, 2, 63, 4, 5}, 0);
  params.score = true;
  const Collected got = harness.Run(params);
  ASSERT_TRUE(got.error);
  EXPECT_EQ(Reason(got), "NONFINITE_LOGITS");
  EXPECT_EQ(harness.Finish(other).ids, FakeModel::Generate({2}, 20));
  EXPECT_EQ(harness.runner().Stats().nonfinite_rows, 1);
  EXPECT_EQ(harness.sessions().arena().num_free(), 3);
}

TEST(Turn, SCH_14_TheContextLimitIsNeverSilent) {
  FakeModelOptions options;
  options.context_limit = 512;
  options.paged = true;
  options.granule = 1;
  RunnerHarness harness(options, {.slots = 4, .kv_blocks = 64});
  const auto run = [&](int prompt, const std::string& session) {
    return harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(prompt, 5), 50, session));
  };
  EXPECT_EQ(run(511, "").ids.size(), 1u);
  EXPECT_EQ(run(511, "").finish->reason, FinishReason::kContextLimit);
  EXPECT_EQ(run(512, "").finish->reason, FinishReason::kContextLimit);
  for (const int prompt : {513, 600}) {
    const Collected got = run(prompt, "");
    ASSERT_TRUE(got.error);
    EXPECT_EQ(got.error->code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(got.error->message()), HasSubstr(std::to_string(prompt)));
    EXPECT_THAT(std::string(got.error->message()), HasSubstr("512"));
  }
  ASSERT_TRUE(harness.Create("s").ok());
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(300, 5), 0, "s")).finish->position, 300);
  EXPECT_EQ(run(300, "s").error->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(harness.Info("s").position, 300);
  const Collected across = harness.Run(RunnerHarness::Greedy({5}, 500, "s"));
  EXPECT_EQ(across.finish->reason, FinishReason::kContextLimit);
  EXPECT_EQ(across.finish->position, 512);

  RunnerHarness recurrent({}, {.slots = 1});
  EXPECT_EQ(recurrent.Run(RunnerHarness::Greedy(std::vector<int32_t>(5000, 5), 3)).ids.size(), 3u);
}

TEST(Turn, PagedTurnsReserveAllTheirBlocksOrWait) {
  FakeModelOptions options;
  options.context_limit = 4096;
  options.paged = true;
  RunnerHarness harness(options, {.slots = 4, .kv_blocks = 4});
  const auto a = harness.Submit(RunnerHarness::Greedy({1}, 3 * kKvBlockTokens - 1));
  const auto b = harness.Submit(RunnerHarness::Greedy({2}, 2 * kKvBlockTokens - 1));
  harness.Step();
  EXPECT_EQ(harness.sessions().kv().num_free(), 1);
  EXPECT_EQ(harness.runner().Stats().waiting, 1);
  EXPECT_EQ(harness.Finish(a).ids, FakeModel::Generate({1}, 3 * kKvBlockTokens - 1));
  EXPECT_EQ(harness.Finish(b).ids, FakeModel::Generate({2}, 2 * kKvBlockTokens - 1));
  EXPECT_EQ(harness.sessions().kv().num_free(), 4);
  const Collected too_much = harness.Run(RunnerHarness::Greedy({1}, 5 * kKvBlockTokens));
  EXPECT_EQ(Reason(too_much), "KV_CAPACITY_EXHAUSTED");
}

TEST(Turn, AReaderThatLagsPausesItsTurnAndNobodyElses) {
  EngineOptions options;
  options.max_tokens_waiting = 10;
  RunnerHarness harness({}, {.slots = 2}, options);
  ASSERT_TRUE(harness.Create("s").ok());
  const auto slow = harness.Submit(RunnerHarness::Greedy({1}, 1000, "s"));
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({2}, 50)).ids, FakeModel::Generate({2}, 50));
  EXPECT_FALSE(harness.Step());  // full: there is nothing to compute
  Collected got;
  got.Take(slow.get());
  EXPECT_EQ(got.ids.size(), 10u);
  EXPECT_TRUE(harness.Step());
  // Goes on where it stood; once it lags for too long it ends, at its last token.
  while (harness.Step()) {
  }
  harness.now += absl::Seconds(31);
  harness.Step();
  got.Take(slow.get());
  EXPECT_EQ(Reason(got), "CLIENT_TOO_SLOW");
  EXPECT_EQ(got.ids, FakeModel::Generate({1}, 20));
  EXPECT_EQ(harness.Info("s").position, 21);
  EXPECT_EQ(harness.Info("s").recent_tokens.back(), got.ids.back());
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 5, "s")).ids.size(), 5u);
}

TEST(Turn, AStalledReaderIsEndedByTime) {
  RunnerHarness harness;
  const auto stream = harness.Submit(RunnerHarness::Greedy({1}, 1000));
  harness.Step();
  harness.now += absl::Seconds(31);
  harness.Step();
  Collected got;
  got.Take(stream.get());
  EXPECT_EQ(Reason(got), "CLIENT_TOO_SLOW");
}

TEST(Turn, SMP_11_SeededDrawsDoNotFeelTheBatch) {
  const auto seeded = [](uint64_t seed) {
    TurnParams params = RunnerHarness::Greedy({1, 2}, 32);
    params.sampling.temperature = 40.0f;
    params.sampling.seed = seed;
    return params;
  };
  RunnerHarness alone;
  const std::vector<int32_t> want = alone.Run(seeded(42)).ids;
  EXPECT_NE(alone.Run(seeded(43)).ids, want);
  RunnerHarness shared({}, {.slots = 16});
  std::vector<std::shared_ptr<TokenStream>> others;
  for (uint64_t i = 0; i < 5; ++i) others.push_back(shared.Submit(seeded(100 + i)));
  for (int i = 0; i < 7; ++i) shared.Step();
  EXPECT_EQ(shared.Run(seeded(42)).ids, want);
}

TEST(Turn, ScoresEveryTokenAfterTheFirst) {
  RunnerHarness harness({}, {.max_step_tokens = 128});
  std::vector<int32_t> tokens = {1};
  for (int i = 0; i < 200; ++i) tokens.push_back(FakeModel::NextToken(tokens, 64));
  TurnParams params = RunnerHarness::Greedy(tokens, 0);
  params.score = true;
  const Collected got = harness.Run(params);
  ASSERT_TRUE(got.finish);
  EXPECT_EQ(got.ids, std::vector<int32_t>(tokens.begin() + 1, tokens.end()));
  for (const float logprob : got.logprobs) EXPECT_GT(logprob, -1e-3f);  // each is the model's own choice
  EXPECT_EQ(got.ranks, std::vector<int32_t>(200, 1));
}

TEST(Turn, RanksAreThoseOfTheModelWhateverSharesTheBatch) {
  std::vector<int32_t> tokens = {1}, ranks;
  for (int i = 0; i < 150; ++i) {
    const int32_t choice = FakeModel::NextToken(tokens, 64);
    const int32_t id = i % 3 == 0 ? choice : (7 * i) % 64;
    int32_t rank = 1;
    for (int32_t j = 0; j < 64; ++j) {
      const float ahead = FakeLogit(j, choice) - FakeLogit(id, choice);
      rank += ahead > 0 || (ahead == 0 && j < id) ? 1 : 0;
    }
    ranks.push_back(rank);
    tokens.push_back(id);
  }
  TurnParams params = RunnerHarness::Greedy(tokens, 0);
  params.score = true;
  RunnerHarness harness({}, {.slots = 16, .max_step_tokens = 100});
  const Collected alone = harness.Run(params);
  ASSERT_TRUE(alone.finish);
  EXPECT_EQ(alone.ranks, ranks);
  EXPECT_EQ(alone.logprobs.size(), ranks.size());
  std::vector<std::shared_ptr<TokenStream>> others;
  for (int32_t i = 0; i < 4; ++i) {
    others.push_back(harness.Submit(RunnerHarness::Greedy({9 + i}, 60)));
    TurnParams other = params;
    other.prompt.erase(other.prompt.begin(), other.prompt.begin() + 5 + i);
    others.push_back(harness.Submit(other));
  }
  const Collected shared = harness.Run(params);
  EXPECT_EQ(shared.ranks, alone.ranks);
  EXPECT_EQ(shared.logprobs, alone.logprobs);
  const Collected generated = harness.Finish(others[0]);
  EXPECT_TRUE(generated.finish && generated.ranks.empty()) << "ranks are of scores only";
}

}  // namespace
}  // namespace weir::testing
