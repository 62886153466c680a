// Engine: the one thread that owns a device, its models' state and its sessions.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/engine_metrics.h"
#include "runtime/engine/language_model.h"
#include "runtime/engine/memory_budget.h"
#include "runtime/engine/token_stream.h"
#include "runtime/engine/token_text.h"
#include "runtime/engine/turn.h"

namespace weir {

class ModelRunner;
class Notifier;
class SessionTable;
struct PendingExport;
struct SnapshotImage;
struct SnapshotShape;
struct WakeList;

struct RunnerLimits {
  int slots = 64;             // sequences that hold state at once
  int64_t kv_blocks = 0;      // paged models only
  int max_step_tokens = 512;  // prefill and decode together
  int max_step_seqs = 256;
  int max_waiting = 64;  // turns in line; one more is refused
};

struct EngineModel {
  std::string name;  // as in `models/{name}`
  std::shared_ptr<const LanguageModel> model;
  std::shared_ptr<const TokenText> text;
  std::vector<int32_t> eos_ids;  // sorted
  // A session moves between processes with the same weights, tokenizer and mixer only.
  std::string mixer;
  uint64_t weights_fingerprint = 0;
  uint64_t tokenizer_fingerprint = 0;
  RunnerLimits limits;
};

// What one owner may hold at once, over all models; 0: any number.
struct OwnerQuota {
  int64_t max_sessions = 0;
  int64_t max_state_bytes = 0;  // of sessions, their snapshots and turns without one
};

using QuotaLookup = std::function<OwnerQuota(const std::string& owner)>;

struct EngineOptions {
  absl::Duration default_ttl = absl::Minutes(10);
  absl::Duration max_ttl = absl::Hours(24);
  absl::Duration reader_stall = absl::Seconds(30);
  // Host memory for snapshots, and for imports until they are whole.
  int64_t snapshot_memory = int64_t{256} << 20;
  // Per stream, generated and not yet taken by the network: there a turn pauses.
  int64_t max_tokens_waiting = 4096;
  // Looked up on the engine's thread whenever an owner asks for more: must not block. Empty: no quotas.
  QuotaLookup quota_of;
  // Called once, on the notifier's thread, when the device has failed: all turns and calls have their status
  // (INTERNAL, DEVICE_LOST), new ones are refused, and nothing more will ever be computed. The process should
  // end.
  std::function<void(const absl::Status& status)> on_device_lost;
  // For what is measured; a test may bring its own clock.
  absl::Time (*now)() = MonotonicNow;
};

// Use and counters of one model; counters never fall.
struct RunnerStats {
  int64_t slots_total = 0, slots_free = 0, slot_bytes = 0;
  int64_t kv_blocks_total = 0, kv_blocks_free = 0, kv_block_bytes = 0;
  int64_t sessions = 0, running = 0, waiting = 0;
  // Over all sessions: tokens that each holds, those of the furthest, and bytes.
  int64_t session_positions = 0, max_session_position = 0, session_state_bytes = 0;
  int64_t prompt_tokens = 0, prefilled_tokens = 0, generated_tokens = 0, steps = 0, nonfinite_rows = 0;
};

template <class T>
using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// All methods may be called from any thread and return at once; `done` and `on_readable` run on the
// notifier's thread.
class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<Device> device,
                                                        std::vector<EngineModel> models,
                                                        const EngineOptions& options);
  ~Engine();  // Stop()s

  // RESOURCE_EXHAUSTED (QUEUE_FULL) at once when the waiting line is full; UNAVAILABLE when stopping or
  // draining. Other refusals arrive through the stream.
  // `on_readable` may run for the last time after the stream's end was read, so it owns what it touches.
  absl::StatusOr<std::shared_ptr<TokenStream>> Submit(TurnParams params,
                                                      absl::AnyInvocable<void()> on_readable);

  struct CreateParams {
    int model = 0;
    std::string id;  // chosen by the caller; ALREADY_EXISTS when this owner has it already
    std::string owner;
    absl::Duration ttl = absl::ZeroDuration();  // zero: the default; capped at max_ttl
  };
  void CreateSession(CreateParams params, Done<SessionInfo> done);
  void GetSession(std::string id, std::string owner, Done<SessionInfo> done);
  // Ordered by id, those after `after`; at most `limit`.
  void ListSessions(std::string owner, std::string after, int limit, Done<std::vector<SessionInfo>> done);
  void DeleteSession(std::string id, std::string owner, std::string etag, Done<SessionInfo> done);
  void ForkSession(std::string parent, std::string owner, std::string etag, std::string child,
                   Done<SessionInfo> done);
  // Changes the time to live; zero: the default.
  void UpdateSession(std::string id, std::string owner, std::string etag, absl::Duration ttl,
                     Done<SessionInfo> done);

  // Copies of state are made in pieces between steps, at most kCopyTime of them each time, and the session is
  // busy meanwhile.
  void CreateSnapshot(std::string session, std::string owner, std::string etag, std::string snapshot,
                      Done<SnapshotInfo> done);
  void GetSnapshot(std::string session, std::string owner, std::string snapshot, Done<SnapshotInfo> done);
  // Ordered by id, those after `after`; at most `limit`.
  void ListSnapshots(std::string session, std::string owner, std::string after, int limit,
                     Done<std::vector<SnapshotInfo>> done);
  void DeleteSnapshot(std::string session, std::string owner, std::string snapshot, Done<SnapshotInfo> done);
  void RollbackSession(std::string session, std::string owner, std::string etag, std::string snapshot,
                       Done<SessionInfo> done);

  // A session on its way out. Used by one thread at a time; the session is free again when it ends.
  class Export {
   public:
    Export(Engine* engine, uint64_t handle, SessionInfo session);
    ~Export();
    Export(const Export&) = delete;
    Export& operator=(const Export&) = delete;
    // As it was when the export began, and stays; session().export_bytes bytes will come.
    const SessionInfo& session() const { return session_; }
    // The next bytes, at most 1 MiB; empty after the last. One call at a time.
    void Read(Done<std::string> done);

   private:
    Engine* const engine_;
    const uint64_t handle_;
    const SessionInfo session_;
  };
  // Allowed while draining, so that sessions can move away.
  void ExportSession(std::string id, std::string owner, std::string etag, Done<std::unique_ptr<Export>> done);
  // `image` is what a SnapshotIntake has checked for params.model.
  void ImportSession(CreateParams params, std::shared_ptr<const SnapshotImage> image, Done<SessionInfo> done);
  // One per model; and the memory for all snapshots and imports.
  const std::vector<SnapshotShape>& snapshot_shapes() const { return *shapes_; }
  MemoryBudget& snapshot_budget() { return snapshot_budget_; }

  // From now on turns, and calls that make or change sessions, are refused with UNAVAILABLE; running and
  // waiting turns go on.
  void Drain();
  bool draining() const { return draining_.load(std::memory_order_acquire); }
  // No turn is running or waiting.
  bool Idle() const;
  // Fails all turns with UNAVAILABLE and joins the threads.
  void Stop();

  std::vector<RunnerStats> Stats() const;  // one per model, as they were after the last step
  // What is counted as it happens. Any thread, while the engine lives.
  const RunnerMetrics& metrics(int model) const;
  EngineMetrics& metrics() { return metrics_; }
  // What is not as it should be since the start, one line each: to be logged once.
  std::vector<std::string> Warnings() const;
  const Device& device() const { return *device_; }
  const std::vector<EngineModel>& models() const { return models_; }
  const EngineOptions& options() const { return options_; }

 private:
  using Command = absl::AnyInvocable<void()>;
  Engine(std::shared_ptr<Device> device, std::vector<EngineModel> models, const EngineOptions& options);

  // Any thread.
  bool Post(Command command);    // false when stopped; the command is then not run
  absl::Status Stopped() const;  // what the caller gets then
  template <class T>
  void Call(Done<T> done, absl::AnyInvocable<absl::StatusOr<T>()> work);
  // `start` gives a StatusOr<PiecewiseWork<T>>.
  // `duration` gets the time from the first piece to the last.
  template <class T, class Start>
  void CallInPieces(Histogram* duration, Done<T> done, Start start);
  void ReadExport(uint64_t handle, Done<std::string> done);
  void CloseExport(uint64_t handle);

  // Engine thread.
  void Run();
  void SubmitOnEngine(TurnParams params, std::shared_ptr<TokenStream> stream);
  absl::StatusOr<ModelRunner*> RunnerOf(const std::string& session, const std::string& owner);
  // The id is free among the owner's, and the owner's quota allows one more session of `state_bytes`.
  absl::Status CheckNewSession(const std::string& session, const std::string& owner,
                               int64_t state_bytes) const;
  absl::Status CheckQuota(const std::string& owner, int64_t new_sessions, int64_t new_bytes) const;
  absl::StatusOr<std::unique_ptr<Export>> OpenExport(const std::string& id, const std::string& owner,
                                                     const std::string& etag);
  template <class T>
  void Reply(const std::shared_ptr<Done<T>>& done, absl::StatusOr<T> result);
  void RunCopies();
  // False when there was nothing to compute, or the device has failed.
  bool StepModels(absl::Time* next_event);
  // Remembers that the device has failed, and gives the status that everybody gets.
  absl::Status LoseDevice(const absl::Status& cause);
  void StopMailbox();
  void EndAll(const absl::Status& status);
  void PostGarbage();
  void PublishStats();
  bool WaitForWork(absl::Time next_event);

  const EngineOptions options_;
  const std::shared_ptr<Device> device_;
  const std::vector<EngineModel> models_;
  std::vector<std::unique_ptr<ModelRunner>> runners_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<WakeList> wake_list_;  // engine thread
  std::vector<Command> commands_;        // engine thread
  absl::Status lost_;                    // not OK: the device has failed. Engine thread
  // Work that is done in pieces, each in turn. Engine thread.
  struct Copy {
    absl::AnyInvocable<bool()> step;  // true when it is done and has replied
    absl::AnyInvocable<void(const absl::Status& why)> give_up;
  };
  std::deque<Copy> copies_;
  uint64_t next_export_ = 1;
  absl::flat_hash_map<uint64_t, std::unique_ptr<PendingExport>> exports_;
  const std::unique_ptr<const std::vector<SnapshotShape>> shapes_;
  MemoryBudget snapshot_budget_;
  EngineMetrics metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> submitting_{0};  // turns in the mailbox
  mutable Mutex mu_;
  CondVar wake_;
  std::vector<Command> mailbox_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status stopped_by_ ABSL_GUARDED_BY(mu_);  // OK: somebody's wish
  bool nudged_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<RunnerStats> stats_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace weir
