// A device that fails, or has too little memory: who is told what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "runtime/base/error.h"
#include "tests/runtime/engine/engine_calls.h"
#include "tests/support/failing_device.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kBallast = 8 << 18;  // floats: 8 MiB, so eight pieces of a copy

class DeviceLostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<EngineModel> models;
    models.push_back(MakeFakeEngineModel({.ballast_floats = kBallast}, {.slots = 2}));
    models.push_back(MakeFakeEngineModel({}, {.slots = 2}));
    models[1].name = "other";
    EngineOptions options;
    options.on_device_lost = [this](const absl::Status& status) {
      EXPECT_FALSE(said_.has_value());
      said_ = status;
      told_.Notify();
    };
    engine_ = *Engine::Create(device_, std::move(models), options);
  }
  static void ExpectLost(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_EQ(GetErrorDetails(status).reason, "DEVICE_LOST") << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("fail:0: it was told to fail"));
  }
  // Once the process has been told: nothing runs, nothing new is taken, and nothing hangs.
  void ExpectEnded() {
    told_.Wait();
    ExpectLost(*said_);
    EXPECT_TRUE(engine_->Idle());
    EXPECT_TRUE(engine_->draining());
    Reader late;
    EXPECT_EQ(late.Start(engine_.get(), RunnerHarness::Greedy({1}, 5)).code(),
              absl::StatusCode::kUnavailable);
    ExpectLost(Await<SessionInfo>([&](Done<SessionInfo> done) {
                 engine_->GetSession("s", "", std::move(done));
               }).status());
    engine_->Stop();
  }

  const std::shared_ptr<FailingDevice> device_ = std::make_shared<FailingDevice>();
  std::optional<absl::Status> said_;
  Notification told_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DeviceLostTest, EveryTurnOfEveryModelIsTold) {
  ASSERT_TRUE(Create(engine_.get(), "s").ok());
  std::vector<std::unique_ptr<Reader>> readers;
  const auto start = [&](int model, const std::string& session) {
    TurnParams params = RunnerHarness::Greedy({model + 1}, 1'000'000'000, session);
    params.model = session.empty() ? model : -1;
    readers.push_back(std::make_unique<Reader>());
    ASSERT_TRUE(readers.back()->Start(engine_.get(), std::move(params)).ok());
  };
  start(0, "s");
  for (const int model : {0, 0, 1, 1, 1}) start(model, "");  // more than there are slots: some wait in line
  device_->FailAt(40);
  for (const auto& reader : readers) {
    ASSERT_TRUE(reader->Wait().error.has_value());
    ExpectLost(*reader->Wait().error);
  }
  ExpectEnded();
}

TEST_F(DeviceLostTest, ACopyThatFailsNeverAnswersWithWhatItDidNotCopy) {
  ASSERT_TRUE(Create(engine_.get(), "s").ok());
  device_->FailAt(3);
  const auto snapshot = Await<SnapshotInfo>(
      [&](Done<SnapshotInfo> done) { engine_->CreateSnapshot("s", "", "", "one", std::move(done)); });
  ExpectLost(snapshot.status());
  ExpectEnded();
}

TEST_F(DeviceLostTest, AnExportThatFailsEndsWithTheReason) {
  ASSERT_TRUE(Create(engine_.get(), "s").ok());
  auto out = *Await<std::unique_ptr<Engine::Export>>([&](Done<std::unique_ptr<Engine::Export>> done) {
    engine_->ExportSession("s", "", "", std::move(done));
  });
  device_->FailAt(2);
  const auto read = [&] {
    return Await<std::string>([&](Done<std::string> done) { out->Read(std::move(done)); });
  };
  EXPECT_TRUE(read().ok());
  ExpectLost(read().status());
  told_.Wait();
  ExpectLost(read().status());
  out.reset();
  ExpectEnded();
}

TEST(DeviceMemory, WhatDoesNotFitIsNamedWithTheRemedy) {
  const auto create = [](int64_t memory, bool paged) {
    FakeModelOptions model;
    model.paged = paged;
    model.context_limit = paged ? 4096 : 0;
    model.ballast_floats = 1 << 18;
    std::vector<EngineModel> models;
    models.push_back(MakeFakeEngineModel(model, {.slots = 16, .kv_blocks = 1024}));
    return Engine::Create(std::make_shared<FailingDevice>(memory), std::move(models), {}).status();
  };
  const auto expect = [](const absl::Status& status, const std::string& what, const std::string& remedy) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(GetErrorDetails(status).reason, "OUT_OF_MEMORY");
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("models/fake"), HasSubstr(what),
                                                     HasSubstr("bytes on fail:0"), HasSubstr(remedy)));
  };
  constexpr int64_t kStates = 16 * ((1 << 20) + 64);
  constexpr int64_t kCache = 1024 * 2 * 2 * kKvBlockTokens * 4;
  expect(create(kStates - 1, false), "16 slots of 1048640 bytes of state", "--slots");
  expect(create(kStates + kCache - 1, true), "1024 KV blocks", "--kv-memory");
  expect(create(kStates, false), "the arrays of a step", "--max-step-tokens");
  EXPECT_TRUE(create(kStates + kCache + (1 << 20), true).ok());
}

}  // namespace
}  // namespace weir::testing
