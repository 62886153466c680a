// Copies of large states on the engine's thread: in pieces, and answered whatever happens meanwhile.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/error.h"
#include "runtime/device/cpu_device.h"
#include "runtime/engine/snapshot_intake.h"
#include "tests/support/fake_model.h"
#include "tests/support/notification.h"

namespace weir::testing {
namespace {

constexpr int64_t kMegabytes = 64;

template <class T>
struct Reply {
  absl::StatusOr<T> result = absl::UnknownError("no reply");
  Notification done;
  Done<T> Take() {
    return [this](absl::StatusOr<T> reply) {
      result = std::move(reply);
      done.Notify();
    };
  }
  absl::StatusOr<T>& Wait() {
    done.Wait();
    return result;
  }
};

class Copies : public ::testing::Test {
 protected:
  Copies() {
    std::vector<EngineModel> models;
    models.push_back(MakeFakeEngineModel({.ballast_floats = kMegabytes << 18}, {.slots = 4}, &fake_));
    engine_ = *Engine::Create(CreateCpuDevice(1), std::move(models), {});
    Reply<SessionInfo> reply;
    Engine::CreateParams params;
    params.id = "s";
    engine_->CreateSession(params, reply.Take());
    EXPECT_TRUE(reply.Wait().ok());
  }
  std::string Export() {
    Reply<std::unique_ptr<Engine::Export>> opened;
    engine_->ExportSession("s", "", "", opened.Take());
    const std::unique_ptr<Engine::Export> out = *std::move(opened.Wait());
    std::string bytes;
    for (;;) {
      Reply<std::string> piece;
      out->Read(piece.Take());
      if (!piece.Wait().ok() || piece.result->empty()) return bytes;
      EXPECT_LE(piece.result->size(), size_t{1} << 20);
      bytes += *piece.result;
    }
  }
  absl::StatusOr<std::shared_ptr<SnapshotImage>> Take(const std::string& bytes) {
    SnapshotIntake intake(&engine_->snapshot_shapes(), &engine_->snapshot_budget(), 0,
                          static_cast<int64_t>(bytes.size()));
    if (absl::Status status = intake.Add(bytes); !status.ok()) return status;
    return intake.Finish();
  }

  std::shared_ptr<FakeModel> fake_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(Copies, StepsGoOnBetweenThePieces) {
  TurnParams params;
  params.prompt = {1};
  params.max_tokens = 1'000'000'000;
  params.sampling.temperature = 0;
  auto stream = *engine_->Submit(params, [] {});
  const auto drain = [&] {
    StreamChunk chunk;
    stream->Drain(&chunk);
    return chunk.token_ids.size();
  };
  while (drain() == 0) std::this_thread::yield();
  const int64_t before = fake_->steps();
  Reply<SnapshotInfo> reply;
  engine_->CreateSnapshot("s", "", "", "one", reply.Take());
  EXPECT_TRUE(reply.Wait().ok());
  EXPECT_GE(fake_->steps() - before, 2);  // no memory copies 64 MiB in a piece's time
  stream->Cancel();
}

TEST_F(Copies, OfTwoImportsUnderOneNameOneWins) {
  const std::string bytes = Export();
  auto first = Take(bytes), second = Take(bytes);
  ASSERT_TRUE(first.ok() && second.ok());
  Engine::CreateParams params;
  params.id = "t";
  Reply<SessionInfo> one, two;
  engine_->ImportSession(params, *std::move(first), one.Take());
  engine_->ImportSession(params, *std::move(second), two.Take());
  EXPECT_NE(one.Wait().ok(), two.Wait().ok());
  const absl::Status refused = one.result.ok() ? two.result.status() : one.result.status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  while (engine_->Stats()[0].slots_free != 2) std::this_thread::yield();
  EXPECT_EQ(engine_->snapshot_budget().used(), 0);
}

TEST_F(Copies, StoppingAnswersWhatIsUnderWay) {
  Reply<SnapshotInfo> snapshot;
  Reply<SessionInfo> created;
  engine_->CreateSnapshot("s", "", "", "one", snapshot.Take());
  Engine::CreateParams params;
  params.id = "t";
  engine_->CreateSession(params, created.Take());
  created.Wait();
  Reply<std::unique_ptr<Engine::Export>> opened;
  engine_->ExportSession("t", "", "", opened.Take());
  std::unique_ptr<Engine::Export> out = *std::move(opened.Wait());
  engine_->Stop();
  snapshot.Wait();
  Reply<std::string> piece;
  out->Read(piece.Take());
  EXPECT_EQ(piece.Wait().status().code(), absl::StatusCode::kUnavailable);
  out.reset();
}

TEST_F(Copies, AnExportThatIsGivenUpFreesItsSession) {
  Reply<std::unique_ptr<Engine::Export>> opened;
  engine_->ExportSession("s", "", "", opened.Take());
  std::unique_ptr<Engine::Export> out = *std::move(opened.Wait());
  Reply<SessionInfo> refused, deleted;
  engine_->DeleteSession("s", "", "", refused.Take());
  EXPECT_EQ(GetErrorDetails(refused.Wait().status()).reason, "SESSION_BUSY");
  Reply<std::string> piece;
  out->Read(piece.Take());
  out.reset();  // with a read under way
  engine_->DeleteSession("s", "", "", deleted.Take());
  EXPECT_TRUE(deleted.Wait().ok());
  piece.Wait();
}

}  // namespace
}  // namespace weir::testing
