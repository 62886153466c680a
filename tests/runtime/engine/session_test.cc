// Sessions of a ModelRunner: what stays, what is copied, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/runtime/engine/runner_harness.h"

namespace weir::testing {
namespace {

TEST(Session, KeepsPromptAndOutput) {
  RunnerHarness harness;
  ASSERT_TRUE(harness.Create("s").ok());
  const std::vector<int32_t> first = harness.Run(RunnerHarness::Greedy({1, 2, 3}, 7, "s")).ids;
  const Collected second = harness.Run(RunnerHarness::Greedy({4, 5}, 7, "s"));
  const std::vector<int32_t> whole = Join(Join({1, 2, 3}, first), {4, 5});
  EXPECT_EQ(second.ids, FakeModel::Generate(whole, 7));
  EXPECT_EQ(second.info->reused_tokens, 10);
  EXPECT_EQ(second.first_position, 12);
  // An empty prompt goes on from the pending token.
  const Collected third = harness.Run(RunnerHarness::Greedy({}, 5, "s"));
  EXPECT_EQ(third.ids, FakeModel::Generate(Join(whole, second.ids), 5));
}

// The same bits, not only the same tokens: whole chunks are cut alike, and what does not fill one waits.
TEST(Session, AppendThenGenerateEqualsGenerate) {
  for (const int granule : {1, 4, 16}) {
    for (int a = 1; a < 40; a += 3) {
      std::vector<std::vector<int>> cuts[2];
      std::vector<int32_t> ids[2];
      for (const int append : {0, 1}) {
        RunnerHarness harness({.granule = granule}, {.max_step_tokens = 20});
        if (harness.device().backend() == Backend::kCpu)
          harness.fake->on_step = [&, append](const StepInput& input, const StepState&) {
            cuts[append].push_back(
                {static_cast<int>(input.batch.positions.data<int64_t>()[0]), input.batch.num_tokens});
          };
        std::vector<int32_t> prompt;
        for (int i = 0; i < 45; ++i) prompt.push_back(i * 11 % 64);
        ASSERT_TRUE(harness.Create("s").ok());
        std::vector<int32_t> rest = prompt;
        if (append == 1) {
          harness.Run(RunnerHarness::Greedy({prompt.begin(), prompt.begin() + a}, 0, "s"));
          rest.erase(rest.begin(), rest.begin() + a);
          EXPECT_EQ(harness.Info("s").position, a);
        }
        ids[append] = harness.Run(RunnerHarness::Greedy(rest, 6, "s")).ids;
      }
      EXPECT_EQ(ids[0], ids[1]);
      // Every whole chunk went through the model in one piece both times.
      for (const auto& steps : cuts)
        for (const auto& step : steps)
          if (step[1] >= granule)
            EXPECT_EQ((step[0] + step[1]) % granule == 0 || step[0] + step[1] == 44, true);
    }
  }
}

TEST(Session, SES_15_TwoWritersAndACancelledTurnInLine) {
  RunnerHarness harness({}, {.slots = 2});
  ASSERT_TRUE(harness.Create("s").ok());
  const auto first = harness.Submit(RunnerHarness::Greedy({1}, 20, "s"));
  harness.Step();
  const Collected second = harness.Run(RunnerHarness::Greedy({2}, 20, "s"));
  EXPECT_EQ(second.error->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Reason(*second.error), "SESSION_BUSY");
  EXPECT_EQ(Reason(harness.sessions().Delete("s", "", "").status()), "SESSION_BUSY");
  EXPECT_EQ(harness.Finish(first).ids, FakeModel::Generate({1}, 20));

  const std::string etag = harness.Info("s").etag;
  const auto queued = harness.Submit(RunnerHarness::Greedy({3, 3, 3}, 5, "s"));
  queued->Cancel();
  harness.Step();
  EXPECT_EQ(harness.Info("s").position, 21);
  EXPECT_EQ(harness.Info("s").etag, etag);
  EXPECT_FALSE(harness.Info("s").busy);
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4}, 2, "s")).ids.size(), 2u);
}

TEST(Session, SES_14_ACancelledTurnLeavesExactlyWhatWasGenerated) {
  RunnerHarness harness;
  ASSERT_TRUE(harness.Create("s").ok());
  std::vector<int32_t> all(512, 9);
  all = Join(all, harness.Run(RunnerHarness::Greedy(all, 48, "s")).ids);
  const auto turn = harness.Submit(RunnerHarness::Greedy({7}, 48, "s"));
  Collected got;
  while (got.ids.empty()) {
    harness.Step();
    got.Take(turn.get());
  }
  turn->Cancel();
  harness.Step();
  all = Join(Join(all, {7}), got.ids);
  EXPECT_EQ(harness.Info("s").position, static_cast<int64_t>(all.size()));
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({8}, 10, "s")).ids, FakeModel::Generate(Join(all, {8}), 10));
}

TEST(Session, EtagAndExpectedPositionGuardATurn) {
  RunnerHarness harness;
  const std::string etag = harness.Create("s")->etag;
  TurnParams params = RunnerHarness::Greedy({1}, 3, "s");
  params.etag = etag;
  const Collected got = harness.Run(params);
  ASSERT_TRUE(got.finish);
  EXPECT_NE(got.finish->etag, etag);
  EXPECT_EQ(Reason(*harness.Run(params).error), "ETAG_MISMATCH");
  params.etag = got.finish->etag;
  params.expected_position = 5;
  EXPECT_EQ(Reason(*harness.Run(params).error), "POSITION_MISMATCH");
  params.expected_position = 4;
  EXPECT_TRUE(harness.Run(params).finish);
}

TEST(Session, SES_12_AForkDivergesAndLeavesItsParentsBytes) {
  for (const bool paged : {false, true}) {
    FakeModelOptions options;
    options.paged = paged;
    options.context_limit = paged ? 1000 : 0;
    RunnerHarness harness(options, {.slots = 3, .kv_blocks = 30});
    ASSERT_TRUE(harness.Create("a").ok());
    std::vector<int32_t> all(50, 3);
    all = Join(all, harness.Run(RunnerHarness::Greedy(all, 30, "a")).ids);
    const std::string before = harness.Export("a");
    ASSERT_TRUE(harness.sessions().Fork("a", "", "", "b", harness.now).ok());
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy({5}, 50, "b")).ids, FakeModel::Generate(Join(all, {5}), 50));
    EXPECT_EQ(harness.Export("a"), before);
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 50, "a")).ids, FakeModel::Generate(all, 50));
    ASSERT_TRUE(harness.sessions().Delete("a", "", "").ok());
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy({6}, 3, "b")).ids.size(), 3u);
    ASSERT_TRUE(harness.sessions().Delete("b", "", "").ok());
    EXPECT_EQ(harness.sessions().arena().num_free(), 3);
    EXPECT_EQ(harness.sessions().kv().num_free(), paged ? 30 : 0);
  }
}

// Forks that append less than a convolution window, or less than a chunk, never reach their parent.
TEST(Session, REC_07_ShortAppendsOnForksLeaveTheParentAlone) {
  RunnerHarness harness({.granule = 4}, {.slots = 4});
  ASSERT_TRUE(harness.Create("p").ok());
  const std::vector<int32_t> prefix(100, 11);
  harness.Run(RunnerHarness::Greedy(prefix, 0, "p"));
  const std::string before = harness.Export("p");
  std::vector<int32_t> extra;
  for (const std::string fork : {"a", "b", "c"}) {
    extra.push_back(static_cast<int32_t>(extra.size()) + 1);
    ASSERT_TRUE(harness.sessions().Fork("p", "", "", fork, harness.now).ok());
    EXPECT_EQ(harness.Run(RunnerHarness::Greedy(extra, 8, fork)).ids,
              FakeModel::Generate(Join(prefix, extra), 8));
    EXPECT_EQ(harness.Export("p"), before);
  }
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4, 3, 2, 1}, 8, "p")).ids,
            FakeModel::Generate(Join(prefix, {4, 3, 2, 1}), 8));
}

TEST(Session, CapacityIsExactAndTheRefusalNamesTheBytes) {
  RunnerHarness harness({}, {.slots = 3});
  for (const std::string id : {"a", "b", "c"}) EXPECT_TRUE(harness.Create(id).ok());
  const absl::Status refused = harness.Create("d").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "SESSION_CAPACITY_EXHAUSTED");
  EXPECT_EQ(GetErrorDetails(refused).metadata[0].second,
            std::to_string(harness.sessions().arena().slot_bytes()));
  EXPECT_GT(GetErrorDetails(refused).retry_after, absl::ZeroDuration());
  ASSERT_TRUE(harness.sessions().Delete("b", "", "").ok());
  EXPECT_TRUE(harness.Create("d").ok());
}

TEST(Session, IdleSessionsExpireAndBusyOnesDoNot) {
  RunnerHarness harness({}, {.slots = 2});
  ASSERT_TRUE(harness.Create("short", absl::Seconds(10)).ok());
  ASSERT_TRUE(harness.Create("long", absl::Seconds(100)).ok());
  harness.now += absl::Seconds(9);
  harness.Run(RunnerHarness::Greedy({1}, 1, "short"));  // use renews it
  harness.now += absl::Seconds(9);
  const auto running = harness.Submit(RunnerHarness::Greedy({1}, 1000, "short"));
  harness.Step();
  harness.now += absl::Seconds(11);
  harness.Step();
  EXPECT_TRUE(harness.sessions().Has("short", ""));
  running->Cancel();
  harness.Step();
  harness.now += absl::Seconds(11);
  harness.Step();
  EXPECT_FALSE(harness.sessions().Has("short", ""));
  EXPECT_TRUE(harness.sessions().Has("long", ""));
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({1}, 1, "short")).error->code(), absl::StatusCode::kNotFound);
}

TEST(Session, AnotherOwnersSessionDoesNotExist) {
  RunnerHarness harness;
  Engine::CreateParams params;
  params.id = "mine";
  params.owner = "me";
  ASSERT_TRUE(harness.sessions().Add(params, harness.now).ok());
  EXPECT_EQ(harness.sessions().Find("mine", "you").status(), harness.sessions().Find("mine", "").status());
  EXPECT_EQ(harness.sessions().Delete("mine", "you", "").status().code(), absl::StatusCode::kNotFound);
  std::vector<SessionInfo> list;
  harness.sessions().List("you", "", 10, &list);
  EXPECT_TRUE(list.empty());
  harness.sessions().List("me", "", 10, &list);
  EXPECT_EQ(list.size(), 1u);
}

TEST(Session, TwoOwnersMayUseOneId) {
  RunnerHarness harness;
  Engine::CreateParams params;
  params.id = "chat";
  for (const char* owner : {"a", "b"}) {
    params.owner = owner;
    ASSERT_TRUE(harness.sessions().Add(params, harness.now).ok());
  }
  TurnParams turn = RunnerHarness::Greedy({1}, 3, "chat");
  turn.owner = "b";
  harness.Run(std::move(turn));
  EXPECT_EQ((*harness.sessions().Find("chat", "a"))->sequence.position(), 0);
  EXPECT_EQ((*harness.sessions().Find("chat", "b"))->sequence.position(), 4);
  EXPECT_EQ(harness.sessions().UseOf("a").sessions, 1);
  EXPECT_EQ(harness.sessions().UseOf("").sessions, 0);
  ASSERT_TRUE(harness.sessions().Delete("chat", "a", "").ok());
  EXPECT_TRUE(harness.sessions().Has("chat", "b"));
}

// Lists go by id within one owner, however the owners' names sort.
TEST(Session, PagesOfOneOwnerHoldNobodyElsesSessions) {
  RunnerHarness harness({}, {.slots = 16});
  Engine::CreateParams params;
  for (const char* owner : {"a", "b", "c"})
    for (const char* id : {"1", "2", "3"}) {
      params.owner = owner;
      params.id = id;
      ASSERT_TRUE(harness.sessions().Add(params, harness.now).ok());
    }
  std::vector<SessionInfo> page;
  harness.sessions().List("b", "1", 10, &page);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].id, "2");
  EXPECT_EQ(page[1].owner, "b");
}

TEST(Session, AnEmptySequenceNeedsAPrompt) {
  RunnerHarness harness;
  ASSERT_TRUE(harness.Create("s").ok());
  EXPECT_EQ(Reason(*harness.Run(RunnerHarness::Greedy({}, 5, "s")).error), "EMPTY_SEQUENCE");
  EXPECT_EQ(Reason(*harness.Run(RunnerHarness::Greedy({}, 5)).error), "EMPTY_SEQUENCE");
}

// A character cut by max_tokens is finished by the next turn when nothing comes in between.
TEST(Session, STR_02_ACutCharacterStaysWithTheSession) {
  EngineModel model = MakeFakeEngineModel({}, {});
  const std::vector<int32_t> ids = FakeModel::Generate({1}, 2);
  ASSERT_NE(ids[0], ids[1]);
  std::vector<std::string> pieces(64, "x");
  pieces[ids[0]] = " \xf0\x9f\x98";
  pieces[ids[1]] = "\x8a";
  model.text = std::make_shared<FakeText>(pieces);
  const auto device = CreateTestDevice(1);
  const EngineOptions options;
  MemoryBudget budget(0);
  auto runner = *ModelRunner::Create(0, model, *device, options, &budget);
  Engine::CreateParams create;
  create.id = "s";
  WakeList wake;
  ASSERT_TRUE(runner->sessions().Add(create, absl::Now()).ok());
  const auto run = [&](std::vector<int32_t> prompt) {
    auto stream = std::make_shared<TokenStream>(
        0, 100, [] {}, [] {});
    runner->outstanding().fetch_add(1);
    runner->Submit(RunnerHarness::Greedy(std::move(prompt), 1, "s"), stream, absl::Now(), &wake);
    while (*runner->Step(absl::Now(), &wake)) {
    }
    Collected got;
    got.Take(stream.get());
    return got;
  };
  const Collected first = run({1});
  EXPECT_EQ(first.text, " ");
  EXPECT_EQ(first.finish->incomplete_text, "\xf0\x9f\x98");
  EXPECT_EQ(run({}).text, "\xf0\x9f\x98\x8a");
}

TEST(Session, SES_05_OneSlotServesTurnAfterTurn) {
  RunnerHarness harness({}, {.slots = 1});
  const std::vector<int32_t> want = FakeModel::Generate({1, 2}, 12);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(harness.Run(RunnerHarness::Greedy({1, 2}, 12)).ids, want);
  const auto cancelled = harness.Submit(RunnerHarness::Greedy({5}, 12));
  for (int i = 0; i < 5; ++i) harness.Step();
  cancelled->Cancel();
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({1, 2}, 12)).ids, want);
}

}  // namespace
}  // namespace weir::testing
