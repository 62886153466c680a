// RunnerHarness: a ModelRunner over a FakeModel, stepped by hand with a clock of our own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/engine/model_runner.h"
#include "runtime/engine/snapshot_intake.h"
#include "tests/support/fake_model.h"
#include "tests/support/test_column.h"

namespace weir::testing {

// What came out of one stream.
struct Collected {
  std::optional<TurnInfo> info;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;
  std::string text;
  int64_t first_position = -1;
  std::optional<Finish> finish;
  std::optional<absl::Status> error;

  bool ended() const { return finish || error; }
  // False when nothing waited: the stream will wake its reader.
  bool Take(TokenStream* stream) {
    StreamChunk chunk;
    stream->Drain(&chunk);
    if (chunk.info) info = chunk.info;
    if (first_position < 0 && !chunk.token_ids.empty()) first_position = chunk.position;
    ids.insert(ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    ranks.insert(ranks.end(), chunk.ranks.begin(), chunk.ranks.end());
    text += chunk.text;
    if (chunk.finish) finish = chunk.finish;
    if (chunk.error) error = chunk.error;
    return !chunk.empty();
  }
};

inline std::string Reason(const absl::Status& status) { return GetErrorDetails(status).reason; }
inline std::string Reason(const Collected& collected) { return Reason(*collected.error); }

inline std::vector<int32_t> Join(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class RunnerHarness {
 public:
  explicit RunnerHarness(FakeModelOptions model_options = {}, RunnerLimits limits = {},
                         EngineOptions options = {})
      : device_(CreateTestDevice(2)), options_(options), budget_(options.snapshot_memory) {
    limits.max_step_tokens = std::max(limits.max_step_tokens, model_options.granule + 1);
    model_ = MakeFakeEngineModel(model_options, limits, &fake);
    runner_ = *ModelRunner::Create(0, model_, *device_, options_, &budget_);
    shapes_ = {SnapshotShape::Of(model_)};
  }

  static TurnParams Greedy(std::vector<int32_t> prompt, int64_t max_tokens, std::string session = "") {
    TurnParams params;
    params.prompt = std::move(prompt);
    params.max_tokens = max_tokens;
    params.session = std::move(session);
    params.sampling.temperature = 0;
    return params;
  }

  std::shared_ptr<TokenStream> Submit(TurnParams params) {
    auto stream = std::make_shared<TokenStream>(
        params.sampling.top_logprobs, options_.max_tokens_waiting, [] {}, [] {});
    runner_->outstanding().fetch_add(1);
    runner_->Submit(std::move(params), stream, now, &wake_);
    return stream;
  }
  bool Step() {
    const absl::StatusOr<bool> computed = runner_->Step(now, &wake_);
    wake_.streams.clear();
    EXPECT_TRUE(computed.ok()) << computed.status();
    return computed.value_or(false);
  }
  // Steps until `stream` has ended; what it said.
  Collected Finish(const std::shared_ptr<TokenStream>& stream) {
    Collected collected;
    for (int i = 0; i < 1'000'000 && !collected.ended(); ++i) {
      Step();
      collected.Take(stream.get());
    }
    return collected;
  }
  Collected Run(TurnParams params) { return Finish(Submit(std::move(params))); }

  absl::StatusOr<SessionInfo> Create(const std::string& id, absl::Duration ttl = absl::ZeroDuration()) {
    Engine::CreateParams params;
    params.id = id;
    params.ttl = ttl;
    return runner_->sessions().Add(params, now);
  }
  template <class T>
  absl::StatusOr<T> Finish(absl::StatusOr<PiecewiseWork<T>> work) {
    if (!work.ok()) return work.status();
    absl::StatusOr<bool> done = false;
    while (done.ok() && !*done) done = work->step();
    if (!done.ok()) return done.status();
    return work->finish(now);
  }
  absl::StatusOr<SnapshotInfo> Snapshot(const std::string& id, const std::string& snapshot) {
    return Finish(sessions().CreateSnapshot(id, "", "", snapshot));
  }
  absl::StatusOr<SessionInfo> Rollback(const std::string& id, const std::string& snapshot) {
    return Finish(sessions().Rollback(id, "", "", snapshot));
  }
  // The file, read in pieces of `piece` bytes.
  std::string Export(const std::string& id, int64_t piece = kCopyBytes) {
    const auto session_export = *sessions().StartExport(id, "", "");
    std::string bytes;
    while (session_export->reader.remaining() > 0) bytes += *session_export->reader.Read(piece);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()), session_export->info.export_bytes);
    sessions().EndExport(session_export.get(), now);
    return bytes;
  }
  absl::StatusOr<std::shared_ptr<SnapshotImage>> Check(const std::string& bytes, size_t piece = 1 << 20) {
    SnapshotIntake intake(&shapes_, &budget_, -1, static_cast<int64_t>(bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += piece)
      if (absl::Status status = intake.Add(std::string_view(bytes).substr(at, piece)); !status.ok())
        return status;
    return intake.Finish();
  }
  absl::StatusOr<SessionInfo> Import(const std::string& id, const std::string& bytes,
                                     size_t piece = 1 << 20) {
    auto image = Check(bytes, piece);
    if (!image.ok()) return image.status();
    Engine::CreateParams params;
    params.id = id;
    return Finish(sessions().StartImport(params, *image));
  }
  MemoryBudget& budget() {
    sessions().TakeGarbage();
    return budget_;
  }
  const SnapshotShape& shape() const { return shapes_[0]; }
  SessionInfo Info(const std::string& id) { return sessions().Info(**sessions().Find(id, ""), true); }
  SessionTable& sessions() { return runner_->sessions(); }
  ModelRunner& runner() { return *runner_; }
  Device& device() { return *device_; }
  // Writes `value` over `count` floats of the device's memory.
  void Overwrite(void* at, int64_t count, float value) {
    const std::vector<float> values(static_cast<size_t>(count), value);
    device_->stream().CopyToDevice(at, values.data(), count * static_cast<int64_t>(sizeof(float)));
    WEIR_CHECK(device_->stream().Synchronize().ok());
  }

  std::shared_ptr<FakeModel> fake;
  absl::Time now = absl::FromUnixSeconds(1'000'000);

 private:
  std::unique_ptr<Device> device_;
  const EngineOptions options_;
  MemoryBudget budget_;
  EngineModel model_;
  std::vector<SnapshotShape> shapes_;
  std::unique_ptr<ModelRunner> runner_;
  WakeList wake_;
};

}  // namespace weir::testing
