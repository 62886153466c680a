// The engine on a device whose streams run late and whose memory the host cannot read: recorded decode steps,
// exact memory, and a device that fails.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/error.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/runtime/engine/engine_calls.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

FakeModelOptions Model(bool paged) {
  FakeModelOptions options;
  options.paged = paged;
  options.context_limit = paged ? 2000 : 0;
  return options;
}

class EngineOnDevice : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(FixedAndPaged, EngineOnDevice, ::testing::Bool());

// Turns that begin and end at different times, so that steps of every size are padded, and mixed with
// prefill.
TEST_P(EngineOnDevice, RecordedDecodeStepsGiveTheSameTokens) {
  RunnerHarness harness(Model(GetParam()), {.slots = 7, .kv_blocks = 64});
  ASSERT_TRUE(harness.runner().step().recording_failure().ok());
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 9; ++i) {
    prompts.emplace_back(1 + 5 * i, i);
    streams.push_back(harness.Submit(RunnerHarness::Greedy(prompts.back(), 3 + 4 * i)));
    harness.Step();
    harness.Step();
  }
  for (int i = 0; i < 9; ++i)
    EXPECT_EQ(harness.Finish(streams[i]).ids, FakeModel::Generate(prompts[i], 3 + 4 * i)) << i;
  EXPECT_GT(harness.runner().step().replayed_steps(), 20);
  EXPECT_LT(harness.runner().step().replayed_steps(),
            harness.runner().Stats().steps);  // prefill is not recorded
}

TEST_P(EngineOnDevice, PaddingTouchesNoIdleSession) {
  RunnerHarness harness(Model(GetParam()), {.slots = 8, .kv_blocks = 64});
  for (const char* id : {"first", "second"}) {
    ASSERT_TRUE(harness.Create(id).ok());
    harness.Run(RunnerHarness::Greedy({1, 2, 3}, 20, id));
  }
  const std::string first = harness.Export("first"), second = harness.Export("second");
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 5; ++i)
    streams.push_back(harness.Submit(RunnerHarness::Greedy({i}, 10 + i)));  // 5 of 8
  for (int i = 0; i < 5; ++i) EXPECT_EQ(harness.Finish(streams[i]).ids, FakeModel::Generate({i}, 10 + i));
  EXPECT_GT(harness.runner().step().replayed_steps(), 10);
  EXPECT_EQ(harness.Export("first"), first);
  EXPECT_EQ(harness.Export("second"), second);
}

TEST(EngineOnDeviceOnce, WhatCannotBeRecordedRunsAsItIs) {
  const std::shared_ptr<Device> device = CreateTestDevice(1);
  std::shared_ptr<FakeModel> fake;
  std::vector<EngineModel> models;
  models.push_back(MakeFakeEngineModel({}, {.slots = 4}, &fake));
  fake->on_step = [&](const StepInput&, const StepState&) {
    static_cast<void>(device->stream().Synchronize());  // which a recording does not allow
  };
  const auto engine = *Engine::Create(device, std::move(models), {});
  ASSERT_EQ(engine->Warnings().size(), 1u);
  EXPECT_THAT(engine->Warnings()[0], HasSubstr("models/fake: decode steps cannot be recorded"));
  Reader reader;
  ASSERT_TRUE(reader.Start(engine.get(), RunnerHarness::Greedy({1}, 30)).ok());
  EXPECT_EQ(reader.Wait().ids, FakeModel::Generate({1}, 30));
}

// Law 6 on the device: what is allocated at start is all there ever is, and the driver agrees on how much
// that is.
TEST_P(EngineOnDevice, MemoryIsWhatWasAllocatedAtStart) {
  const auto used = [] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
    return static_cast<int64_t>(total - free);
  };
  const int64_t others = used();
  RunnerHarness harness(Model(GetParam()), {.slots = 4, .kv_blocks = 256});
  constexpr int kAllocations = 7;  // states, cache, step arrays, workspace, logits, sampling (2)
  const int64_t bytes = harness.device().allocated_bytes();
  const int64_t host_bytes = harness.device().allocated_host_bytes();
  EXPECT_GE(used() - others, bytes);
  EXPECT_LE(used() - others, bytes + kAllocations * (int64_t{2} << 20));
  ASSERT_TRUE(harness.Create("s").ok());
  const int64_t start = used();
  for (const int position : {1000, 1900}) {
    const int missing = position - static_cast<int>(harness.Info("s").position);
    harness.Run(RunnerHarness::Greedy(std::vector<int32_t>(missing - 40, 3), 40, "s"));
    EXPECT_EQ(harness.Info("s").position, position);
    EXPECT_EQ(harness.device().allocated_bytes(), bytes);
    EXPECT_EQ(harness.device().allocated_host_bytes(), host_bytes);
    EXPECT_EQ(used(), start);
  }
}

// The first step that fails, the n-th, and one that is replayed: the turns and the process hear of it alike.
class EngineOnLostDevice : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Kernels, EngineOnLostDevice, ::testing::Values(1, 2, 30));

TEST_P(EngineOnLostDevice, EveryTurnEndsWithDeviceLost) {
  std::vector<EngineModel> models;
  models.push_back(MakeFakeEngineModel({}, {.slots = 2}));
  EngineOptions options;
  Notification told;
  options.on_device_lost = [&](const absl::Status&) { told.Notify(); };
  const auto engine = *Engine::Create(CreateTestDevice(1), std::move(models), options);
  emulator::FailKernel(GetParam(), cudaErrorIllegalAddress);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < 4; ++i) {
    readers.push_back(std::make_unique<Reader>());
    const absl::Status started =
        readers.back()->Start(engine.get(), RunnerHarness::Greedy({i}, 1'000'000'000));
    if (started.ok()) continue;
    EXPECT_TRUE(engine->draining()) << started;  // it was lost already
    readers.pop_back();
  }
  told.Wait();
  for (const auto& reader : readers) {
    ASSERT_TRUE(reader->Wait().error.has_value());
    EXPECT_EQ(reader->Wait().error->code(), absl::StatusCode::kInternal);
    EXPECT_EQ(GetErrorDetails(*reader->Wait().error).reason, "DEVICE_LOST");
    EXPECT_THAT(std::string(reader->Wait().error->message()), HasSubstr("cudaErrorIllegalAddress"));
  }
  EXPECT_TRUE(engine->Idle());
}

}  // namespace
}  // namespace weir::testing
