// The Engine with its threads: hand-offs, limits, stopping; and no allocation in a step.
#include "runtime/engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "runtime/base/error.h"
#include "runtime/engine/snapshot_intake.h"
#include "tests/runtime/engine/engine_calls.h"
#include "tests/runtime/engine/runner_harness.h"
#include "tests/support/count_allocations.h"

namespace weir::testing {
namespace {

std::unique_ptr<Engine> MakeEngine(const FakeModelOptions& model, const RunnerLimits& limits,
                                   std::shared_ptr<FakeModel>* fake = nullptr,
                                   const EngineOptions& options = {}) {
  std::vector<EngineModel> models;
  models.push_back(MakeFakeEngineModel(model, limits, fake));
  return *Engine::Create(CreateCpuDevice(1), std::move(models), options);
}

TEST(Engine, TokensArriveInOrderFromManySubmitters) {
  auto engine = MakeEngine({}, {.slots = 8, .max_waiting = 1000});
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        Reader reader;
        ASSERT_TRUE(reader.Start(engine.get(), RunnerHarness::Greedy({i, round}, 50)).ok());
        EXPECT_EQ(reader.Wait().ids, FakeModel::Generate({i, round}, 50));
      }
    });
  for (std::thread& thread : threads) thread.join();
  while (!engine->Idle()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(engine->Stats()[0].slots_free, 8);
}

TEST(Engine, SCH_10_AFullLineRefusesAtOnceAndExactly) {
  auto engine = MakeEngine({.step_time = absl::Milliseconds(2)}, {.slots = 4, .max_waiting = 64});
  std::vector<std::unique_ptr<Reader>> accepted;
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    auto reader = std::make_unique<Reader>();
    const absl::Status status = reader->Start(engine.get(), RunnerHarness::Greedy({1}, 100'000));
    if (status.ok()) {
      accepted.push_back(std::move(reader));
    } else {
      ++refused;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(GetErrorDetails(status).reason, "QUEUE_FULL");
      EXPECT_GT(GetErrorDetails(status).retry_after, absl::ZeroDuration());
    }
  }
  EXPECT_EQ(accepted.size(), 68u);
  EXPECT_EQ(refused, 1932);
  for (auto& reader : accepted) reader->Cancel();
  for (auto& reader : accepted) EXPECT_EQ(reader->Wait().error->code(), absl::StatusCode::kCancelled);
}

TEST(Engine, SCH_07_ThousandsOfCancelsLoseNoSlot) {
  auto engine = MakeEngine({}, {.slots = 4, .max_waiting = 100});
  unsigned random = 1;
  for (int i = 0; i < 2000; ++i) {
    Reader reader;
    ASSERT_TRUE(reader.Start(engine.get(), RunnerHarness::Greedy({1}, 1'000'000)).ok());
    random = random * 1664525u + 1013904223u;
    for (unsigned spin = 0; spin < random % 4000; ++spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    reader.Cancel();
    reader.Wait();
  }
  for (int i = 0; i < 4; ++i) {
    Reader reader;
    ASSERT_TRUE(reader.Start(engine.get(), RunnerHarness::Greedy({2}, 10)).ok());
    EXPECT_EQ(reader.Wait().ids, FakeModel::Generate({2}, 10));
  }
  while (!engine->Idle()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(engine->Stats()[0].slots_free, 4);
  EXPECT_EQ(engine->Stats()[0].running, 0);
}

TEST(Engine, ThousandSessionsOpenedAndClosedAHundredTimesLoseNoSlot) {
  auto engine = MakeEngine({}, {.slots = 1000});
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> open{0}, closed{0};
    for (int i = 0; i < 1000; ++i) {
      Engine::CreateParams params;
      params.id = "s" + std::to_string(i);
      engine->CreateSession(params, [&](const absl::StatusOr<SessionInfo>& reply) {
        EXPECT_TRUE(reply.ok());
        ++open;
      });
      engine->DeleteSession(params.id, "", "", [&](const absl::StatusOr<SessionInfo>& reply) {
        EXPECT_TRUE(reply.ok());
        ++closed;
      });
    }
    while (closed.load() < 1000) absl::SleepFor(absl::Microseconds(100));
    EXPECT_EQ(open.load(), 1000);
  }
  const auto info = Create(engine.get(), "last");
  EXPECT_TRUE(info.ok());
  while (engine->Stats()[0].sessions != 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(engine->Stats()[0].slots_free, 999);
}

TEST(Engine, SessionNamesAreUniqueOverAllModels) {
  std::vector<EngineModel> models;
  models.push_back(MakeFakeEngineModel({}, {.slots = 2}));
  models.push_back(MakeFakeEngineModel({.vocab_size = 32}, {.slots = 2}));
  auto engine = *Engine::Create(CreateCpuDevice(1), std::move(models), {});
  EXPECT_TRUE(Create(engine.get(), "s").ok());
  const auto second = Await<SessionInfo>([&](Done<SessionInfo> done) {
    Engine::CreateParams params;
    params.model = 1;
    params.id = "s";
    engine->CreateSession(params, std::move(done));
  });
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  TurnParams params = RunnerHarness::Greedy({1}, 3, "s");
  params.model = 1;
  Reader wrong;
  ASSERT_TRUE(wrong.Start(engine.get(), params).ok());
  EXPECT_EQ(GetErrorDetails(*wrong.Wait().error).reason, "MODEL_MISMATCH");
  params.model = -1;
  Reader right;
  ASSERT_TRUE(right.Start(engine.get(), params).ok());
  EXPECT_EQ(right.Wait().ids, FakeModel::Generate({1}, 3));
}

TEST(Engine, DrainingLetsTurnsFinishAndRefusesNewOnes) {
  auto engine = MakeEngine({.step_time = absl::Milliseconds(1)}, {});
  Reader running;
  ASSERT_TRUE(running.Start(engine.get(), RunnerHarness::Greedy({1}, 50)).ok());
  engine->Drain();
  Reader refused;
  EXPECT_EQ(refused.Start(engine.get(), RunnerHarness::Greedy({1}, 5)).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Create(engine.get(), "s").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(running.Wait().ids, FakeModel::Generate({1}, 50));
  while (!engine->Idle()) absl::SleepFor(absl::Milliseconds(1));
}

TEST(Engine, StoppingFailsWhatIsLeftAndAnswersEveryCall) {
  auto engine = MakeEngine({.step_time = absl::Milliseconds(1)}, {.slots = 1});
  Reader running, waiting;
  ASSERT_TRUE(running.Start(engine.get(), RunnerHarness::Greedy({1}, 1'000'000)).ok());
  ASSERT_TRUE(waiting.Start(engine.get(), RunnerHarness::Greedy({1}, 1'000'000)).ok());
  engine->Stop();
  EXPECT_EQ(running.Wait().error->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(waiting.Wait().error->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Create(engine.get(), "s").status().code(), absl::StatusCode::kUnavailable);
}

TEST(Engine, AnIdleEngineDoesNotStep) {
  std::shared_ptr<FakeModel> fake;
  auto engine = MakeEngine({}, {}, &fake);
  Reader reader;
  ASSERT_TRUE(reader.Start(engine.get(), RunnerHarness::Greedy({1}, 5)).ok());
  reader.Wait();
  const int64_t steps = fake->steps();
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(fake->steps(), steps);
}

// Law 6: once warm, a decode step allocates nothing, at any position.
TEST(Engine, ADecodeStepAllocatesNothing) {
  if (!CountsAllocations()) GTEST_SKIP() << "the sanitizer has its own operator new";
  RunnerHarness harness({}, {.slots = 32});
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 32; ++i) {
    TurnParams params = RunnerHarness::Greedy({i}, 1'000'000);
    params.sampling.temperature = i % 2 == 0 ? 0.0f : 1.0f;
    params.sampling.top_k = 5;
    streams.push_back(harness.Submit(params));
  }
  StreamChunk chunk;
  const auto drain = [&] {
    for (auto& stream : streams) stream->Drain(&chunk);
  };
  for (int i = 0; i < 300; ++i) {
    harness.Step();
    drain();
  }
  for (int i = 0; i < 200; ++i) {
    {
      const AllocationCounter allocations;
      harness.Step();
      EXPECT_EQ(allocations.count(), 0);
    }
    drain();
  }
}

absl::StatusOr<SessionInfo> CreateFor(Engine* engine, const std::string& owner, const std::string& id) {
  return Await<SessionInfo>([&](Done<SessionInfo> done) {
    Engine::CreateParams params;
    params.id = id;
    params.owner = owner;
    engine->CreateSession(params, std::move(done));
  });
}

// A session's export, checked.
std::shared_ptr<SnapshotImage> ImageOf(Engine* engine, const std::string& id, const std::string& owner) {
  auto out = *Await<std::unique_ptr<Engine::Export>>([&](Done<std::unique_ptr<Engine::Export>> done) {
    engine->ExportSession(id, owner, "", std::move(done));
  });
  SnapshotIntake intake(&engine->snapshot_shapes(), &engine->snapshot_budget(), 0,
                        out->session().export_bytes);
  for (;;) {
    const std::string piece =
        *Await<std::string>([&](Done<std::string> done) { out->Read(std::move(done)); });
    if (piece.empty()) return *intake.Finish();
    EXPECT_TRUE(intake.Add(piece).ok());
  }
}

std::string ReasonOf(const absl::Status& status) { return GetErrorDetails(status).reason; }

TEST(Engine, AnOwnersQuotaOfSessionsHoldsForEveryWayToMakeOne) {
  EngineOptions options;
  options.quota_of = [](const std::string& owner) {
    return OwnerQuota{.max_sessions = owner == "poor" ? 2 : 0};
  };
  auto engine = MakeEngine({}, {.slots = 16}, nullptr, options);
  ASSERT_TRUE(CreateFor(engine.get(), "poor", "1").ok());
  const std::shared_ptr<SnapshotImage> image = ImageOf(engine.get(), "1", "poor");
  ASSERT_TRUE(CreateFor(engine.get(), "poor", "2").ok());
  EXPECT_EQ(ReasonOf(CreateFor(engine.get(), "poor", "3").status()), "SESSION_QUOTA_EXCEEDED");
  EXPECT_EQ(ReasonOf(CreateFor(engine.get(), "poor", "2").status()), "SESSION_EXISTS");
  const auto fork = Await<SessionInfo>(
      [&](Done<SessionInfo> done) { engine->ForkSession("1", "poor", "", "3", std::move(done)); });
  EXPECT_EQ(ReasonOf(fork.status()), "SESSION_QUOTA_EXCEEDED");
  const auto imported = Await<SessionInfo>([&](Done<SessionInfo> done) {
    Engine::CreateParams params;
    params.id = "3";
    params.owner = "poor";
    engine->ImportSession(params, image, std::move(done));
  });
  EXPECT_EQ(ReasonOf(imported.status()), "SESSION_QUOTA_EXCEEDED");
  for (const char* id : {"1", "2", "3"}) EXPECT_TRUE(CreateFor(engine.get(), "rich", id).ok());
  ASSERT_TRUE(Await<SessionInfo>([&](Done<SessionInfo> done) {
                engine->DeleteSession("1", "poor", "", std::move(done));
              }).ok());
  EXPECT_TRUE(CreateFor(engine.get(), "poor", "3").ok());
}

TEST(Engine, AnOwnersQuotaOfStateBytesCountsSessionsAndTurns) {
  auto unlimited = MakeEngine({}, {.slots = 1});
  const int64_t slot = unlimited->Stats()[0].slot_bytes;
  ASSERT_GT(slot, 0);
  EngineOptions options;
  options.quota_of = [slot](const std::string&) { return OwnerQuota{.max_state_bytes = 2 * slot}; };
  auto engine = MakeEngine({}, {.slots = 16}, nullptr, options);
  ASSERT_TRUE(CreateFor(engine.get(), "a", "1").ok());
  TurnParams endless = RunnerHarness::Greedy({1}, 1'000'000'000);
  endless.owner = "a";
  Reader first;
  ASSERT_TRUE(first.Start(engine.get(), endless).ok());
  EXPECT_EQ(ReasonOf(CreateFor(engine.get(), "a", "2").status()), "STATE_QUOTA_EXCEEDED");
  Reader second;
  ASSERT_TRUE(second.Start(engine.get(), endless).ok());
  EXPECT_EQ(ReasonOf(second.Wait().error.value_or(absl::OkStatus())), "STATE_QUOTA_EXCEEDED");
  // A turn of the session needs no more than the session has.
  TurnParams inside = RunnerHarness::Greedy({1}, 3, "1");
  inside.owner = "a";
  Reader third;
  ASSERT_TRUE(third.Start(engine.get(), inside).ok());
  EXPECT_FALSE(third.Wait().error.has_value());
  EXPECT_TRUE(CreateFor(engine.get(), "b", "1").ok());
  first.Cancel();
  first.Wait();
  // Snapshots count as well.
  const auto snapshot = [&](const std::string& id) {
    return Await<SnapshotInfo>(
        [&](Done<SnapshotInfo> done) { engine->CreateSnapshot("1", "a", "", id, std::move(done)); });
  };
  EXPECT_TRUE(CreateFor(engine.get(), "a", "2").ok());
  EXPECT_EQ(ReasonOf(snapshot("s").status()), "STATE_QUOTA_EXCEEDED");
  engine->Stop();
  EXPECT_TRUE(engine->Idle());  // what was refused is not counted
}

}  // namespace
}  // namespace weir::testing
