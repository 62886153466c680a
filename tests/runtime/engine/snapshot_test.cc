// Law 5 at the engine: snapshot and restore, here and in a second process, and what is refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <functional>
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
  const std::string bytes = harness.Export("a");
  ASSERT_TRUE(harness.Import("b", bytes).ok());
  EXPECT_EQ(harness.Info("b").position, harness.Info("a").position);
  EXPECT_EQ(harness.Info("b").recent_tokens, harness.Info("a").recent_tokens);
  EXPECT_EQ(harness.Export("b"), bytes);
  const int64_t prefilled = harness.runner().Stats().prefilled_tokens;
  const std::vector<int32_t> want = harness.Run(Sampled({9}, 20, "a")).ids;
  EXPECT_LE(harness.runner().Stats().prefilled_tokens - prefilled, 1);  // the pending token, and no more
  EXPECT_EQ(harness.Run(Sampled({9}, 20, "b")).ids, want);
}

TEST_P(Snapshot, SES_07_GenerateWithAnEmptyAppendAfterRestore) {
  RunnerHarness harness(Options(GetParam()), {.slots = 4, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(77, 6), 0, "a"));
  ASSERT_TRUE(harness.Import("b", harness.Export("a")).ok());
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
    std::ofstream(file, std::ios::binary) << harness.Export("a");
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
  ASSERT_TRUE(harness.Import("b", bytes.str()).ok());
  std::ofstream out(std::string(file) + ".ids");
  for (const int32_t id : harness.Run(Sampled({9}, 20, "b")).ids) out << id << ' ';
}

TEST_P(Snapshot, SES_10_DamageIsRefusedBeforeAnythingChanges) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 50, "a"));
  const std::string good = harness.Export("a");
  const auto running = harness.Submit(RunnerHarness::Greedy({4}, 400, ""));
  std::vector<std::string> bad(5, good);
  bad[0][0] ^= 1;
  bad[1][good.size() / 2] ^= 1;
  bad[2][good.size() - 7] ^= 1;
  bad[3].pop_back();
  bad[4].push_back('x');
  bad.push_back("");
  bad.push_back(good.substr(0, 100));
  for (const std::string& bytes : bad) {
    harness.Step();
    const absl::Status status = harness.Import("b", bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(GetErrorDetails(status).reason, "STATE_CORRUPT");
  }
  EXPECT_FALSE(harness.sessions().Has("b", ""));
  EXPECT_EQ(harness.budget().used(), 0);
  EXPECT_EQ(harness.Finish(running).ids, FakeModel::Generate({4}, 400));
  EXPECT_EQ(harness.sessions().arena().num_free(), 1);
  EXPECT_EQ(harness.Export("a"), good);
}

// Every single bit of a file, and every length.
TEST_P(Snapshot, SES_10_AnyBitAndAnyCutIsRefused) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 70, "a"));
  const std::string good = harness.Export("a");
  ASSERT_TRUE(harness.Check(good).ok());
  std::string bytes = good;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const absl::Status status = harness.Check(bytes).status();
    // Another format version is told apart from damage, so these bits can look like one.
    ASSERT_TRUE(absl::IsDataLoss(status) || (bit / 8 >= 8 && bit / 8 < 12 && !status.ok())) << bit;
    bytes[bit / 8] = good[bit / 8];
  }
  for (size_t size = 0; size < good.size(); ++size)
    ASSERT_TRUE(absl::IsDataLoss(harness.Check(good.substr(0, size)).status())) << size;
  EXPECT_EQ(harness.budget().used(), 0);
  EXPECT_EQ(harness.Export("a"), good);
}

// A file that was announced at another length than it has, or than its model gives it.
TEST_P(Snapshot, TheAnnouncedSizeHasToBeTheRightOne) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 70, "a"));
  const std::string good = harness.Export("a");
  const std::vector<SnapshotShape> shapes = {harness.shape()};
  for (const int64_t lie : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{1} << 40, int64_t{1} << 62}) {
    MemoryBudget budget(int64_t{4} << 20);
    SnapshotIntake intake(&shapes, &budget, -1, lie);
    const absl::Status status = intake.Add(good);
    EXPECT_EQ(GetErrorDetails(status).reason, "STATE_CORRUPT") << lie;
    EXPECT_LE(budget.used(), kMaxSnapshotHeaderBytes);
  }
}

TEST_P(Snapshot, PiecesMayEndAnywhere) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 70, "a"));
  const std::string good = harness.Export("a");
  for (const int64_t piece : {1, 7, 64, 1711, 1712, 1713, 4000}) {
    EXPECT_EQ(harness.Export("a", piece), good);
    ASSERT_TRUE(harness.Import("b", good, static_cast<size_t>(piece)).ok()) << piece;
    EXPECT_EQ(harness.Export("b"), good);
    ASSERT_TRUE(harness.sessions().Delete("b", "", "").ok());
  }
}

TEST_P(Snapshot, SES_09_AnEmptySessionRoundTrips) {
  RunnerHarness harness(Options(GetParam()), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  ASSERT_TRUE(harness.Import("b", harness.Export("a")).ok());
  EXPECT_EQ(harness.Run(RunnerHarness::Greedy({4}, 5, "b")).ids, FakeModel::Generate({4}, 5));
  EXPECT_EQ(harness.sessions().StartExport("nobody", "", "").status().code(), absl::StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(State, Snapshot, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Paged" : "Fixed"; });

// What an ended session left in slots and blocks reaches nobody, nor does it leave by an export.
TEST_P(Snapshot, SES_02_ANewSessionStartsFromNothing) {
  const auto fresh = [&](RunnerHarness* harness) {
    EXPECT_TRUE(harness->Create("n").ok());
    std::vector<int32_t> ids = harness->Run(RunnerHarness::Greedy({7}, 20, "n")).ids;
    return std::pair(ids, harness->Export("n"));
  };
  RunnerHarness unused(Options(GetParam()), {.slots = 3, .kv_blocks = 9});
  const auto want = fresh(&unused);
  RunnerHarness harness(Options(GetParam()), {.slots = 3, .kv_blocks = 9});
  for (const std::string id : {"a", "b", "c"}) {
    ASSERT_TRUE(harness.Create(id).ok());
    harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(150, 6), 30, id));
  }
  for (const std::string id : {"a", "b", "c"}) ASSERT_TRUE(harness.sessions().Delete(id, "", "").ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int slot = 0; slot < 3; ++slot)
    harness.Overwrite(harness.sessions().arena().tensors()[0].row<float>(slot), 2, nan);
  for (const PagedKv& layer : harness.sessions().kv().layers())  // this model writes no values
    harness.Overwrite(layer.keys.raw(), layer.keys.num_elements(), nan);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(fresh(&harness) == want);
    ASSERT_TRUE(harness.sessions().Delete("n", "", "").ok());
  }
}

TEST(SnapshotModel, AnotherModelsSnapshotIsRefused) {
  RunnerHarness fixed(Options(false), {.slots = 2});
  RunnerHarness paged(Options(true), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(fixed.Create("a").ok());
  const std::string bytes = fixed.Export("a");
  EXPECT_EQ(paged.Import("b", bytes).status().code(), absl::StatusCode::kFailedPrecondition);
}

// What differs is named, on both sides; each field by itself.
TEST(SnapshotModel, EveryDifferenceIsNamed) {
  RunnerHarness harness(Options(true), {.slots = 2, .kv_blocks = kBlocks});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 70, "a"));
  const std::string good = harness.Export("a");
  const auto refusal = [&](const std::function<void(SnapshotShape*)>& change) {
    SnapshotShape shape = harness.shape();
    change(&shape);
    const std::vector<SnapshotShape> shapes = {shape};
    SnapshotIntake intake(&shapes, &harness.budget(), 0, static_cast<int64_t>(good.size()));
    const absl::Status status = intake.Add(good);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_EQ(GetErrorDetails(status).reason, "SNAPSHOT_MISMATCH");
    return status.ok() ? "" : GetErrorDetails(status).metadata[0].second;
  };
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->mixer = "softmax"; }), "mixer");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->states[0].shape[0] = 3; }), "state");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->states.clear(); }), "state");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->paged.dtype = DType::kF16; }), "cache");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->paged.num_kv_heads = 2; }), "cache");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->weights_fingerprint ^= 1; }), "weights' fingerprint");
  EXPECT_EQ(refusal([](SnapshotShape* s) { s->tokenizer_fingerprint ^= 1; }), "tokenizer's fingerprint");
  std::string other = good;
  other[8] = 3;
  EXPECT_EQ(GetErrorDetails(harness.Check(other).status()).metadata[0].second, "format version");
}

// A whole file that ends inside its header, and one that ends before what it announced: the message fits.
TEST(SnapshotModel, WhereAFileIsCutIsSaid) {
  RunnerHarness harness(Options(false), {.slots = 2});
  ASSERT_TRUE(harness.Create("a").ok());
  const std::string good = harness.Export("a");
  const std::vector<SnapshotShape> shapes = {harness.shape()};
  for (const size_t bytes : {size_t{1}, size_t{8}, size_t{100}}) {
    SnapshotIntake intake(&shapes, &harness.budget(), 0, static_cast<int64_t>(bytes));
    absl::Status status = intake.Add(good.substr(0, bytes));
    if (status.ok()) status = intake.Finish().status();
    EXPECT_EQ(GetErrorDetails(status).reason, "STATE_CORRUPT");
    EXPECT_EQ(std::string(status.message()).find(std::to_string(bytes) + " of " + std::to_string(bytes)),
              std::string::npos)
        << status;
  }
}

// With checksums that are right: what is to be zero is, so that a file which is accepted exports as itself.
TEST(SnapshotModel, WhatIsToBeZeroIsChecked) {
  RunnerHarness harness(Options(false), {.slots = 2});
  ASSERT_TRUE(harness.Create("a").ok());
  harness.Run(RunnerHarness::Greedy({1, 2, 3}, 5, "a"));
  const std::string good = harness.Export("a");
  const auto header_bytes = static_cast<size_t>(harness.shape().header_bytes());
  const auto repaired = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] + 1);
    for (const size_t end : {header_bytes, bytes.size()}) {
      SnapshotChecksum sum;
      sum.Add(std::string_view(bytes).substr(0, end - 8));
      const uint64_t checksum = sum.Get();
      std::memcpy(bytes.data() + end - 8, &checksum, sizeof(checksum));
    }
    return bytes;
  };
  EXPECT_TRUE(harness.Check(repaired(header_bytes + 1)).ok());  // another state, but one that could be
  for (const size_t at : {offsetof(SnapshotHeader, mixer) + 20, offsetof(SnapshotHeader, kv_heads),
                          offsetof(SnapshotHeader, pending) + 40, offsetof(SnapshotHeader, reserved)})
    EXPECT_TRUE(absl::IsDataLoss(harness.Check(repaired(at)).status())) << at;
}

TEST(SnapshotModel, ItsModelIsFoundAmongSeveral) {
  RunnerHarness harness(Options(false), {.slots = 2});
  ASSERT_TRUE(harness.Create("a").ok());
  const std::string good = harness.Export("a");
  std::vector<SnapshotShape> shapes(3, harness.shape());
  shapes[0].weights_fingerprint = 1;
  shapes[1].tokenizer_fingerprint = 1;
  SnapshotIntake intake(&shapes, &harness.budget(), -1, static_cast<int64_t>(good.size()));
  ASSERT_TRUE(intake.Add(good).ok());
  EXPECT_EQ(intake.model(), 2);
  EXPECT_TRUE(intake.Finish().ok());
}

TEST(SnapshotModel, NonFiniteStateIsRefused) {
  RunnerHarness harness(Options(false), {.slots = 2});
  ASSERT_TRUE(harness.Create("a").ok());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    harness.Overwrite(harness.sessions().arena().tensors()[0].row<float>(0) + 1, 1, bad);
    EXPECT_EQ(harness.Import("b", harness.Export("a")).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(harness.sessions().arena().num_free(), 1);
  }
}

}  // namespace
}  // namespace weir::testing
