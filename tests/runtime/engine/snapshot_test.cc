// Law 5 at the engine: snapshot and restore, here and in a second process, and what is refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "tests/runtime/engine/runner_harness.h"
#include "tests/support/temp_dir.h"

namespace weir::testing {
namespace {

FakeModelOptions Options(bool paged) {
  FakeModelOptions options;
  options.paged = paged;
  options.context_limit = paged ? 2000 : 0;
  return options;
}

constexpr int64_t kBlocks = 64;

absl::StatusOr<SessionInfo> Restore(RunnerHarness* harness, const std::string& id, const std::string& bytes) {
  Engine::CreateParams params;
  params.id = id;
  return harness->sessions().Restore(params, bytes, harness->now);
}

TurnParams Sampled(std::vector<int32_t> prompt, int64_t max_tokens, const std::string& session) {
  TurnParams params = RunnerHarness::Greedy(std::move(prompt), max_tokens, session);
  params.sampling.temperature = 30.0f;
  params.sampling.seed = 7;
  params.sampling.repetition_penalty = 1.3f;
  return params;
}

class Snapshot : public ::testing::TestWithParam<bool> {};

TEST_P(Snapshot, SES_06_RestoreGoesOnBitForBit) {
  RunnerHarness harness(Options(GetParam()), {.slots = 4, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(Sampled(std::vector<int32_t>(1000, 6), 30, "a"));
  const std::string bytes = *harness.sessions().Snapshot("a", "");
  ASSERT_TRUE(Restore(&harness, "b", bytes).ok());
  EXPECT_EQ(harness.Info("b").position, harness.Info("a").position);
  EXPECT_EQ(harness.Info("b").recent_tokens, harness.Info("a").recent_tokens);
  EXPECT_EQ(*harness.sessions().Snapshot("b", ""), bytes);
  const int64_t prefilled = harness.runner().Stats().prefilled_tokens;
  const std::vector<int32_t> want = harness.Run(Sampled({9}, 20, "a")).ids;
  EXPECT_LE(harness.runner().Stats().prefilled_tokens - prefilled, 1);  // the pending token, and no more
  EXPECT_EQ(harness.Run(Sampled({9}, 20, "b")).ids, want);
}

TEST_P(Snapshot, SES_07_GenerateWithAnEmptyAppendAfterRestore) {
  RunnerHarness harness(Options(GetParam()), {.slots = 4, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(77, 6), 0, "a"));
  ASSERT_TRUE(Restore(&harness, "b", *harness.sessions().Snapshot("a", "")).ok());
  const std::vector<int32_t> want = FakeModel::Generate(std::vector<int32_t>(77, 6), 10);
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 10, "b")).ids, want);
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({}, 10, "a")).ids, want);
}

TEST_P(Snapshot, ASecondProcessGoesOnFromAFile) {
  const TempDir folder;
  const std::string file = folder.path() + "/snapshot";
  std::vector<int32_t> want;
  {
    RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
    ASSERT_TRUE(harness.Create("a").ok());
    harness.Run(Sampled(std::vector<int32_t>(200, 6), 30, "a"));
    std::ofstream(file, std::ios::binary) << *harness.sessions().Snapshot("a", "");
    want = harness.Run(Sampled({9}, 20, "a")).ids;
  }
  // A fresh program image: this test again, in restore mode.
  const pid_t child = fork();
  if (child == 0) {
    setenv("WEIR_SNAPSHOT_FILE", file.c_str(), 1);
    setenv("WEIR_SNAPSHOT_PAGED", GetParam() ? "1" : "0", 1);
    execl("/proc/self/exe", "weir_engine_test", "--gtest_filter=SnapshotChild.Restores", nullptr);
    _exit(127);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::ifstream answer(file + ".ids");
  std::vector<int32_t> got;
  for (int32_t id; answer >> id;) got.push_back(id);
  EXPECT_EQ(got, want);
}

TEST(SnapshotChild, Restores) {
  const char* file = getenv("WEIR_SNAPSHOT_FILE");
  if (file == nullptr)
    GTEST_SKIP() << "runs only as the second process of Snapshot.ASecondProcessGoesOnFromAFile";
  RunnerHarness harness(Options(std::string(getenv("WEIR_SNAPSHOT_PAGED")) == "1"),
                        {.slots = 3, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("other").ok());  // so that the slot is another one
  std::ifstream in(file, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  ASSERT_TRUE(Restore(&harness, "b", bytes.str()).ok());
  std::ofstream out(std::string(file) + ".ids");
  for (const int32_t id : harness.Run(Sampled({9}, 20, "b")).ids) out << id << ' ';
}

TEST_P(Snapshot, SES_10_DamageIsRefusedBeforeAnythingChanges) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 50, "a"));
  const std::string good = *harness.sessions().Snapshot("a", "");
  std::vector<std::string> bad(5, good);
  bad[0][0] ^= 1;
  bad[1][good.size() / 2] ^= 1;
  bad[2][good.size() - 7] ^= 1;
  bad[3].pop_back();
  bad[4].push_back('x');
  bad.push_back("");
  bad.push_back(good.substr(0, 100));
  for (const std::string& bytes : bad) {
    const absl::Status status = Restore(&harness, "b", bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(GetErrorDetails(status).reason, "STATE_CORRUPT");
  }
  EXPECT_FALSE(harness.sessions().Has("b"));
  EXPECT_EQ(harness.sessions().arena().num_free(), 1);
  EXPECT_EQ(*harness.sessions().Snapshot("a", ""), good);
}

TEST_P(Snapshot, SES_09_AnEmptySessionRoundTrips) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(Restore(&harness, "b", *harness.sessions().Snapshot("a", "")).ok());
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4}, 5, "b")).ids, FakeModel::Generate({4}, 5));
  EXPECT_EQ(harness.sessions().Snapshot("nobody", "").status().code(), absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(State, Snapshot, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Paged" : "Fixed"; });

TEST(SnapshotModel, AnotherModelsSnapshotIsRefused) {
  RunnerHarness fixed(Options(false), {.slots = 2});
  RunnerHarness paged(Options(true), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(fixed.Create("a").ok());
  const std::string bytes = *fixed.sessions().Snapshot("a", "");
  EXPECT_EQ(Restore(&paged, "b", bytes).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SnapshotModel, NonFiniteStateIsRefused) {
  RunnerHarness harness(Options(false), {.slots = 2});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.sessions().arena().tensors()[0].row<float>(0)[0] = std::numeric_limits<float>::quiet_NaN();
  const std::string bytes = *harness.sessions().Snapshot("a", "");
  EXPECT_EQ(Restore(&harness, "b", bytes).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir::testing
