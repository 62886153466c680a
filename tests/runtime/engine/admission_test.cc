// Who gets KV blocks when they are scarce, and what a turn leaves behind that ended before its prompt was
// fed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runtime/base/error.h"
#include "tests/runtime/engine/runner_harness.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAreArray;

std::vector<int32_t> Ids(int count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  for (int32_t& id : ids) id = id * 5 % 64;
  return ids;
}

FakeModelOptions Paged() {
  FakeModelOptions options;
  options.context_limit = 1 << 16;
  options.paged = true;
  return options;
}

// Greedy tokens of a turn that takes `blocks` KV blocks for itself.
int64_t TokensFor(int blocks) { return int64_t{blocks} * kKvBlockTokens - 1; }

// --- KV blocks ---

TEST(Admission, TwoSessionsThatWaitForEachOthersBlocksAreRefused) {
  RunnerHarness harness(Paged(), {.slots = 4, .kv_blocks = 10});
  for (const auto& [id, blocks] : {std::pair("a", 6), std::pair("b", 3)}) {
    ASSERT_TRUE(harness.Create(id).ok());
    ASSERT_TRUE(harness.Run(RunnerHarness::Greedy({1}, TokensFor(blocks), id)).finish);
  }
  ASSERT_EQ(harness.sessions().kv().num_free(), 1);
  const auto a = harness.Submit(RunnerHarness::Greedy({2}, TokensFor(3), "a"));
  const auto b = harness.Submit(RunnerHarness::Greedy({2}, TokensFor(3), "b"));
  harness.Step();
  for (const auto& stream : {a, b}) {
    Collected got;
    got.Take(stream.get());
    ASSERT_TRUE(got.error);
    EXPECT_EQ(got.error->code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reason(got), "KV_CAPACITY_EXHAUSTED");
    EXPECT_GT(GetErrorDetails(*got.error).retry_after, absl::ZeroDuration());
  }
  // Neither session has changed, and each goes on when there is room.
  EXPECT_EQ(harness.Info("b").position, 3 * kKvBlockTokens);
  ASSERT_TRUE(harness.sessions().Delete("a", "", "").ok());
  EXPECT_TRUE(harness.Run(RunnerHarness::Greedy({2}, TokensFor(3), "b")).finish);
}

TEST(Admission, ASessionsTurnWaitsForBlocksThatRunningTurnsGiveBack) {
  RunnerHarness harness(Paged(), {.slots = 4, .kv_blocks = 4});
  ASSERT_TRUE(harness.Create("s").ok());
  const auto running = harness.Submit(RunnerHarness::Greedy({1}, TokensFor(3)));
  harness.Step();
  const auto waiting = harness.Submit(RunnerHarness::Greedy({2}, TokensFor(2), "s"));
  harness.Step();
  EXPECT_EQ(harness.runner().Stats().waiting, 1);
  EXPECT_TRUE(harness.Finish(running).finish);
  EXPECT_EQ(harness.Finish(waiting).ids, FakeModel::Generate({2}, static_cast<int>(TokensFor(2))));
}

TEST(Admission, ALargeTurnIsNotStarvedBySmallOnesThatCameLater) {
  RunnerHarness harness(Paged(), {.slots = 8, .kv_blocks = 4});
  const auto running = harness.Submit(RunnerHarness::Greedy({1}, TokensFor(2)));
  harness.Step();
  const auto large = harness.Submit(RunnerHarness::Greedy({2}, TokensFor(4)));
  const auto small = harness.Submit(RunnerHarness::Greedy({3}, TokensFor(1)));
  harness.Step();
  EXPECT_EQ(harness.runner().Stats().waiting, 2);  // the small one would fit, and then the next, and the next
  EXPECT_TRUE(harness.Finish(running).finish);
  EXPECT_EQ(harness.Finish(large).ids, FakeModel::Generate({2}, static_cast<int>(TokensFor(4))));
  EXPECT_EQ(harness.Finish(small).ids, FakeModel::Generate({3}, static_cast<int>(TokensFor(1))));
}

TEST(Admission, BlocksThatIdleSessionsKeepHoldUpOnlyWhoNeedsThem) {
  RunnerHarness harness(Paged(), {.slots = 8, .kv_blocks = 4});
  ASSERT_TRUE(harness.Create("s").ok());
  ASSERT_TRUE(harness.Run(RunnerHarness::Greedy({1}, TokensFor(2), "s")).finish);
  const auto large = harness.Submit(RunnerHarness::Greedy({2}, TokensFor(4)));
  EXPECT_TRUE(harness.Run(RunnerHarness::Greedy({3}, TokensFor(1))).finish);
  EXPECT_EQ(harness.runner().Stats().waiting, 1);
  ASSERT_TRUE(harness.sessions().Delete("s", "", "").ok());
  EXPECT_TRUE(harness.Finish(large).finish);
}

// --- turns that end before their prompt was fed ---

// A session with 36 appended tokens that wait for the rest of their chunk, and a step without room for more
// than one chunk.
struct Appended {
  Appended() : harness({.granule = 64}, {.slots = 4, .max_step_tokens = 65}) {
    EXPECT_TRUE(harness.Create("s").ok());
    EXPECT_TRUE(harness.Run(RunnerHarness::Greedy(tokens, 0, "s")).finish);
    EXPECT_EQ(harness.Info("s").position, 36);
  }
  RunnerHarness harness;
  const std::vector<int32_t> tokens = Ids(36);
};

TEST(AbandonedTurn, CancelledInAFullStepLeavesWhatWasAppended) {
  Appended appended;
  RunnerHarness& harness = appended.harness;
  const auto other = harness.Submit(RunnerHarness::Greedy(Ids(300), 5));
  const auto turn = harness.Submit(RunnerHarness::Greedy({7, 8, 9}, 5, "s"));
  harness.Step();  // both are admitted, the other's chunk fills the step
  turn->Cancel();
  harness.Step();
  EXPECT_EQ(harness.Info("s").position, 36);
  EXPECT_THAT(harness.Info("s").recent_tokens, ElementsAreArray(appended.tokens));
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({8}, 9, "s")).ids,
            FakeModel::Generate(Join(appended.tokens, {8}), 9));
}

TEST(AbandonedTurn, TimeThatIsOverAtOnceLeavesWhatWasAppended) {
  for (const bool with_prompt : {false, true}) {
    Appended appended;
    RunnerHarness& harness = appended.harness;
    TurnParams params =
        RunnerHarness::Greedy(with_prompt ? std::vector<int32_t>{7, 8, 9} : std::vector<int32_t>(), 5, "s");
    params.max_time = absl::ZeroDuration();
    const Collected got = harness.Run(params);
    ASSERT_TRUE(got.finish);
    EXPECT_EQ(got.finish->reason, FinishReason::kTimeLimit);
    EXPECT_EQ(got.finish->position, 36);
    EXPECT_THAT(harness.Info("s").recent_tokens, ElementsAreArray(appended.tokens));
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 9, "s")).ids, FakeModel::Generate(appended.tokens, 9));
  }
}

TEST(AbandonedTurn, TheRecentTokensAreThoseOfTheSequence) {
  RunnerHarness harness({.granule = 64}, {.max_step_tokens = 65});
  ASSERT_TRUE(harness.Create("s").ok());
  const std::vector<int32_t> prompt = Ids(400);
  const auto turn = harness.Submit(RunnerHarness::Greedy(prompt, 5, "s"));
  harness.Step();
  turn->Cancel();
  harness.Step();
  // One chunk went in, and one token stays pending so that the session can go on by itself.
  const std::vector<int32_t> kept(prompt.begin(), prompt.begin() + 65);
  EXPECT_EQ(harness.Info("s").position, 65);
  EXPECT_THAT(harness.Info("s").recent_tokens, ElementsAreArray(kept));
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 9, "s")).ids, FakeModel::Generate(kept, 9));
}

TEST(AbandonedTurn, ANewSessionIsNewStill) {
  RunnerHarness harness({.granule = 64}, {.max_step_tokens = 65});
  ASSERT_TRUE(harness.Create("s").ok());
  TurnParams params = RunnerHarness::Greedy({7, 8, 9}, 5, "s");
  params.max_time = absl::ZeroDuration();
  ASSERT_TRUE(harness.Run(params).finish);
  EXPECT_EQ(harness.Info("s").position, 0);
  EXPECT_TRUE(harness.Info("s").recent_tokens.empty());
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4}, 9, "s")).ids, FakeModel::Generate({4}, 9));
}

TEST(AbandonedTurn, ACutCharacterSurvivesAPromptThatNeverCame) {
  // Id 1 is the first half of a character, id 2 the second.
  std::vector<std::string> pieces(64, "x");
  pieces[1] = "\xC3";
  pieces[2] = "\xA9";
  TextStream text;
  std::string out;
  Sequence sequence;
  sequence.AppendPrompt(std::vector<int32_t>{5});
  text.Append(pieces[1], &out);
  sequence.AppendGenerated(1);
  sequence.text = text.state();
  const SequenceMark before = sequence.Mark();
  sequence.text = TextState();
  sequence.AppendPrompt(std::vector<int32_t>{5, 6});
  sequence.DropUnfedPrompt(before, [](int32_t) { return false; });
  EXPECT_EQ(sequence.position(), 2);
  EXPECT_EQ(sequence.text.tail_size, 1);
}

TEST(AbandonedTurn, ALongPromptsMemoryIsGivenBack) {
  RunnerHarness harness;
  ASSERT_TRUE(harness.Create("s").ok());
  ASSERT_TRUE(harness.Run(RunnerHarness::Greedy(Ids(100'000), 3, "s")).finish);
  EXPECT_LE((*harness.sessions().Find("s", ""))->sequence.pending.capacity(), 4u * kChunkTokens);
}

// --- requests that leave nothing to draw ---

TEST(Admission, BansOfEveryIdAreRefusedBeforeAnythingIsFed) {
  RunnerHarness harness({.eos_id = 63});
  ASSERT_TRUE(harness.Create("s").ok());
  const std::vector<int32_t> all = Join({5, 6}, harness.Run(RunnerHarness::Greedy({5, 6}, 3, "s")).ids);
  TurnParams params = RunnerHarness::Greedy({}, 5, "s");
  for (int32_t id = 0; id < 63; ++id) params.sampling.logit_bias.emplace_back(id, kBanBias);
  params.ignore_eos = true;
  const Collected got = harness.Run(params);
  ASSERT_TRUE(got.error);
  EXPECT_EQ(got.error->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Reason(got), "NO_CANDIDATE");
  EXPECT_EQ(harness.Info("s").position, 5);
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 4, "s")).ids, FakeModel::Generate(all, 4));
}

}  // namespace
}  // namespace weir::testing
