// Snapshots that stay in memory: their budget, rollback, and what it costs to refuse one.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/runtime/engine/runner_harness.h"

namespace weir::testing {
namespace {

FakeModelOptions PoisonedOptions(bool paged) {
  FakeModelOptions options;
  options.paged = paged;
  options.context_limit = paged ? 2000 : 0;
  options.poison_id = 60;
  return options;
}

TurnParams Sampled(std::vector<int32_t> prompt, int64_t max_tokens) {
  TurnParams params = RunnerHarness::Greedy(std::move(prompt), max_tokens, "a");
  params.sampling.temperature = 30.0f;
  params.sampling.seed = 7;
  params.sampling.logit_bias = {{60, -100.0f}};  // the poison
  params.sampling.repetition_penalty = 1.3f;
  return params;
}

class Rollback : public ::testing::TestWithParam<bool> {
 protected:
  explicit Rollback(EngineOptions options = {})
      : harness_(PoisonedOptions(GetParam()), {.slots = 3, .kv_blocks = 40}, options) {
    EXPECT_TRUE(harness_.Create("a").ok());
    harness_.Run(Sampled(std::vector<int32_t>(200, 6), 30));
  }
  RunnerHarness harness_;
};

TEST_P(Rollback, TheSameCallsGiveTheSameAnswers) {
  const std::string before = harness_.Export("a");
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  const std::string etag = harness_.Info("a").etag;
  const std::vector<int32_t> first = harness_.Run(Sampled({9}, 300)).ids;
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<SessionInfo> info = harness_.Rollback("a", "s");
    ASSERT_TRUE(info.ok());
    EXPECT_EQ(info->position, 230);
    EXPECT_NE(info->etag, etag);
    EXPECT_FALSE(info->busy);
    EXPECT_TRUE(harness_.Export("a") == before);
    EXPECT_EQ(harness_.Run(Sampled({9}, 300)).ids, first);
  }
  EXPECT_EQ(harness_.sessions().kv().num_free() + (GetParam() ? KvPool::BlocksFor(531) : 0),
            GetParam() ? 40 : 0);
}

TEST_P(Rollback, BackAndForthBetweenSnapshotsOfOneSession) {
  ASSERT_TRUE(harness_.Snapshot("a", "early").ok());
  harness_.Run(Sampled({9}, 300));
  ASSERT_TRUE(harness_.Snapshot("a", "late").ok());
  const std::string late = harness_.Export("a");
  ASSERT_TRUE(harness_.Rollback("a", "early").ok());
  EXPECT_EQ(harness_.Info("a").position, 230);
  ASSERT_TRUE(harness_.Rollback("a", "late").ok());  // forward again: blocks are claimed anew
  EXPECT_TRUE(harness_.Export("a") == late);
}

TEST_P(Rollback, SES_09_WhatIsRefusedChangesNothing) {
  ASSERT_TRUE(harness_.Create("b").ok());
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  const std::string before = harness_.Export("a");
  const SessionInfo info = harness_.Info("a");
  EXPECT_EQ(Reason(harness_.Rollback("a", "unknown").status()), "SNAPSHOT_NOT_FOUND");
  EXPECT_EQ(harness_.Rollback("b", "s").status().code(), absl::StatusCode::kNotFound);  // another session's
  EXPECT_EQ(harness_.Rollback("nobody", "s").status().code(), absl::StatusCode::kNotFound);
  auto& sessions = harness_.sessions();
  EXPECT_EQ(sessions.Rollback("a", "somebody else", "", "s").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(sessions.GetSnapshot("a", "somebody else", "s").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(sessions.ListSnapshots("a", "somebody else", "", 9).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(sessions.Rollback("a", "", "stale", "s").status()), "ETAG_MISMATCH");
  EXPECT_EQ(Reason(sessions.CreateSnapshot("a", "", "stale", "t").status()), "ETAG_MISMATCH");
  EXPECT_EQ(Reason(harness_.Snapshot("a", "s").status()), "SNAPSHOT_EXISTS");
  EXPECT_EQ(harness_.Info("a").etag, info.etag);
  EXPECT_TRUE(harness_.Export("a") == before);
  EXPECT_EQ(harness_.Info("a").snapshot_bytes, harness_.budget().used());
}

TEST_P(Rollback, ABusySessionIsAborted) {
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  const auto running = harness_.Submit(Sampled({1}, 20));
  harness_.Step();
  EXPECT_EQ(Reason(harness_.Rollback("a", "s").status()), "SESSION_BUSY");
  EXPECT_EQ(Reason(harness_.Snapshot("a", "t").status()), "SESSION_BUSY");
  EXPECT_EQ(Reason(harness_.sessions().StartExport("a", "", "").status()), "SESSION_BUSY");
  EXPECT_TRUE(harness_.sessions().GetSnapshot("a", "", "s").ok());
  EXPECT_TRUE(harness_.Finish(running).finish);

  // And the other way round: a turn does not get between the pieces of a copy.
  auto copy = harness_.sessions().CreateSnapshot("a", "", "", "t");
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(harness_.Info("a").busy);
  EXPECT_EQ(Reason(*harness_.Run(Sampled({1}, 20)).error), "SESSION_BUSY");
  EXPECT_EQ(Reason(harness_.sessions().Delete("a", "", "").status()), "SESSION_BUSY");
  harness_.now += absl::Hours(1);
  harness_.Step();  // nor does the end of its time
  ASSERT_TRUE(harness_.Finish(std::move(copy)).ok());
  EXPECT_FALSE(harness_.Info("a").busy);
}

TEST_P(Rollback, AnEmptySessionRollsBackToEmpty) {
  ASSERT_TRUE(harness_.Create("e").ok());
  ASSERT_TRUE(harness_.Snapshot("e", "s").ok());
  harness_.Run(RunnerHarness::Greedy({4, 5}, 100, "e"));
  ASSERT_EQ(harness_.Rollback("e", "s")->position, 0);
  EXPECT_EQ(harness_.Run(RunnerHarness::Greedy({4}, 5, "e")).ids, FakeModel::Generate({4}, 5));
}

TEST_P(Rollback, HealsAStateThatIsNotFinite) {
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  const std::string before = harness_.Export("a");
  EXPECT_TRUE(harness_.Run(RunnerHarness::Greedy({60}, 3, "a")).error);
  EXPECT_EQ(Reason(harness_.Snapshot("a", "t").status()), "STATE_CORRUPT");
  EXPECT_EQ(Reason(harness_.sessions().StartExport("a", "", "").status()), "STATE_CORRUPT");
  ASSERT_TRUE(harness_.Rollback("a", "s").ok());
  EXPECT_TRUE(harness_.Export("a") == before);
}

TEST_P(Rollback, AForkHasNoSnapshots) {
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  ASSERT_TRUE(harness_.sessions().Fork("a", "", "", "f", harness_.now).ok());
  EXPECT_EQ(harness_.Info("f").snapshot_bytes, 0);
  EXPECT_EQ(Reason(harness_.Rollback("f", "s").status()), "SNAPSHOT_NOT_FOUND");
}

TEST_P(Rollback, ListsArePagedByIdAndPriced) {
  for (const char* id : {"d", "b", "a", "c"}) ASSERT_TRUE(harness_.Snapshot("a", id).ok());
  const auto first = *harness_.sessions().ListSnapshots("a", "", "", 3);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].id + first[1].id + first[2].id, "abc");
  EXPECT_EQ(harness_.sessions().ListSnapshots("a", "", "c", 3)->size(), 1u);
  EXPECT_EQ(first[0].position, 230);
  EXPECT_EQ(harness_.budget().used(), 4 * first[0].state_bytes);
  EXPECT_GE(first[0].state_bytes, harness_.Info("a").state_bytes);
}

TEST_P(Rollback, MemoryComesBackWithSnapshotSessionAndTime) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
    ASSERT_GT(harness_.budget().used(), 0);
    ASSERT_TRUE(harness_.sessions().DeleteSnapshot("a", "", "s").ok());
    ASSERT_EQ(harness_.budget().used(), 0);
  }
  EXPECT_EQ(Reason(harness_.sessions().DeleteSnapshot("a", "", "s").status()), "SNAPSHOT_NOT_FOUND");
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  ASSERT_TRUE(harness_.sessions().Delete("a", "", "").ok());
  EXPECT_EQ(harness_.budget().used(), 0);
  ASSERT_TRUE(harness_.Create("b", absl::Seconds(10)).ok());
  ASSERT_TRUE(harness_.Snapshot("b", "s").ok());
  harness_.now += absl::Seconds(11);
  harness_.Step();
  EXPECT_EQ(harness_.budget().used(), 0);
}

TEST_P(Rollback, ASnapshotThatIsDeletedMeanwhileStillServesTheRollback) {
  ASSERT_TRUE(harness_.Snapshot("a", "s").ok());
  const std::string before = harness_.Export("a");
  harness_.Run(Sampled({9}, 30));
  auto work = harness_.sessions().Rollback("a", "", "", "s");
  ASSERT_TRUE(harness_.sessions().DeleteSnapshot("a", "", "s").ok());
  EXPECT_GT(harness_.budget().used(), 0);  // as long as it is read
  ASSERT_TRUE(harness_.Finish(std::move(work)).ok());
  EXPECT_EQ(harness_.budget().used(), 0);
  EXPECT_TRUE(harness_.Export("a") == before);
}

INSTANTIATE_TEST_SUITE_P(State, Rollback, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Paged" : "Fixed"; });

TEST(SnapshotMemory, IsExactAndTheRefusalNamesTheBytes) {
  EngineOptions options;
  int64_t price = 0;
  {
    RunnerHarness harness;
    ASSERT_TRUE(harness.Create("a").ok());
    price = harness.Snapshot("a", "s")->state_bytes;
  }
  options.snapshot_memory = 3 * price;
  RunnerHarness harness({}, {}, options);
  ASSERT_TRUE(harness.Create("a").ok());
  for (const char* id : {"1", "2", "3"}) ASSERT_TRUE(harness.Snapshot("a", id).ok());
  const absl::Status refused = harness.Snapshot("a", "4").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "SNAPSHOT_MEMORY_EXHAUSTED");
  EXPECT_NE(std::string(refused.message()).find(std::to_string(price)), std::string::npos);
  EXPECT_FALSE(harness.Info("a").busy);
  // An import needs as much until it is whole.
  EXPECT_EQ(Reason(harness.Import("b", harness.Export("a")).status()), "SNAPSHOT_MEMORY_EXHAUSTED");
  ASSERT_TRUE(harness.sessions().DeleteSnapshot("a", "", "2").ok());
  EXPECT_EQ(harness.budget().used(), 2 * price);
  EXPECT_TRUE(harness.Snapshot("a", "4").ok());
}

// A rollback that needs blocks which others hold now fails before anything changes.
TEST(SnapshotMemory, ARollbackWithoutBlocksIsRefusedWhole) {
  RunnerHarness harness(PoisonedOptions(true), {.slots = 3, .kv_blocks = 10});
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Snapshot("a", "empty").ok());
  harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(400, 3), 2, "a"));
  ASSERT_TRUE(harness.Snapshot("a", "long").ok());
  ASSERT_TRUE(harness.Rollback("a", "empty").ok());
  EXPECT_EQ(harness.sessions().kv().num_free(), 10);
  ASSERT_TRUE(harness.Create("b").ok());
  harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(500, 3), 2, "b"));
  const std::string before = harness.Export("a");
  const std::string etag = harness.Info("a").etag;
  EXPECT_EQ(Reason(harness.Rollback("a", "long").status()), "KV_CAPACITY_EXHAUSTED");
  EXPECT_TRUE(harness.Export("a") == before);
  EXPECT_EQ(harness.Info("a").etag, etag);
  EXPECT_FALSE(harness.Info("a").busy);
  ASSERT_TRUE(harness.sessions().Delete("b", "", "").ok());
  EXPECT_EQ(harness.Rollback("a", "long")->position, 402);
}

TEST(SessionUpdate, TheTimeToLiveChangesAlsoWhileATurnRuns) {
  RunnerHarness harness;
  const std::string etag = harness.Create("a", absl::Seconds(10))->etag;
  auto& sessions = harness.sessions();
  const auto info = sessions.Update("a", "", etag, absl::Seconds(100), harness.now);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->expire_time, harness.now + absl::Seconds(100));
  EXPECT_EQ(info->etag, etag);
  EXPECT_EQ(Reason(sessions.Update("a", "", "stale", absl::Seconds(1), harness.now).status()),
            "ETAG_MISMATCH");
  EXPECT_FALSE(sessions.Update("a", "somebody else", "", absl::Seconds(1), harness.now).ok());
  EXPECT_EQ(sessions.Update("a", "", "", absl::Hours(1000), harness.now)->expire_time,
            harness.now + EngineOptions().max_ttl);
  const auto running = harness.Submit(RunnerHarness::Greedy({1}, 50, "a"));
  harness.Step();
  EXPECT_TRUE(sessions.Update("a", "", "", absl::Seconds(5), harness.now).ok());
  harness.Finish(running);
  EXPECT_EQ(harness.Info("a").expire_time, harness.now + absl::Seconds(5));
}

}  // namespace
}  // namespace weir::testing
