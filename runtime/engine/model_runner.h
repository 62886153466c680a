// ModelRunner: one model's turns, from the waiting line to the last token. Passive: the engine calls it, and
// so can a test, with any clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/engine/model_step.h"
#include "runtime/engine/notifier.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/session_table.h"

namespace weir {

// One request on its way. Engine thread only.
struct ActiveTurn {
  TurnParams params;
  std::shared_ptr<TokenStream> stream;
  Session* session = nullptr;  // null: `own` is the sequence
  Sequence own;
  SequenceMark before;  // of the sequence, at admission
  TextStream text;
  uint64_t arrival = 0;
  int64_t prompt_tokens = 0;
  int64_t generated = 0;
  absl::Time time_limit = absl::InfiniteFuture();
  TurnTimes times;
  bool admitted = false;  // the prompt has joined the sequence
  bool done = false;

  Sequence& sequence() { return session != nullptr ? session->sequence : own; }
};

// Engine thread only, but for the counters that Submit reads.
class ModelRunner {
 public:
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(int model_index, const EngineModel& model,
                                                             Device& device, const EngineOptions& options,
                                                             MemoryBudget* snapshot_budget);

  // Host memory that the steps of a model take on a CPU, whatever its slots; an upper bound.
  static int64_t StepBytes(const LanguageModel& model, const RunnerLimits& limits, int num_threads);

  SessionTable& sessions() { return *sessions_; }
  // What `owner` holds: its sessions, and what its turns hold or have still to reserve.
  SessionUse UseOf(std::string_view owner) const;
  // Bytes that a turn would add to that; 0 when there is no such session.
  int64_t NewBytes(const TurnParams& params) const;

  // Takes a turn into the waiting line, or fails it at once through its stream.
  void Submit(TurnParams params, std::shared_ptr<TokenStream> stream, absl::Time now, WakeList* wake);
  // Ends what has to end, admits what fits, computes one step. False when there was nothing to compute. An
  // error is the device's, which is then lost: the turns are as they were, and FailAll is all that is left to
  // do.
  absl::StatusOr<bool> Step(absl::Time now, WakeList* wake);
  void FailAll(const absl::Status& status, WakeList* wake);

  bool HasTurns() const { return !running_.empty() || !waiting_.empty(); }
  // When something happens although nobody asks and no turn is there: a session's end.
  absl::Time NextEvent() const { return sessions_->NextExpiry(); }
  RunnerStats Stats() const;
  const RunnerMetrics& metrics() const { return metrics_; }  // any thread
  const ModelStep& step() const { return *step_; }

  // Any thread. Turns that were accepted and have not ended (whoever calls Submit adds the turn), and how
  // many of them need not wait.
  std::atomic<int64_t>& outstanding() { return outstanding_; }
  int64_t admissible() const { return admissible_.load(std::memory_order_relaxed); }

 private:
  struct WantedRow {
    int run;  // among runs_
    int row;  // of the logits
  };
  ModelRunner(const EngineModel& model, Device& device, const EngineOptions& options)
      : model_(model), device_(device), options_(options) {}

  absl::Status Check(const TurnParams& params, const Sequence& sequence) const;
  bool BansAll(const TurnParams& params) const;
  absl::Status AttachSession(ActiveTurn* turn);
  void Sweep(absl::Time now, WakeList* wake);
  void Admit(absl::Time now, WakeList* wake);
  // KV blocks that the turn needs beside those that its session has.
  int64_t MissingBlocks(ActiveTurn* turn) const;
  // KV blocks that are free once the running turns without a session have ended.
  int64_t BlocksInSight() const;
  absl::Status OutOfBlocks(const ActiveTurn& turn, int64_t missing) const;
  bool TryAdmit(ActiveTurn* turn, absl::Time now, WakeList* wake);
  int64_t TokensToReserve(const TurnParams& params, const Sequence& sequence) const;
  bool PlanStep();
  void PlanSampling(RowSampling* sampling);
  int32_t ScoreTarget(const WantedRow& wanted) const;
  uint64_t DrawIndex(const WantedRow& wanted) const;
  void ReadRows();
  void ReadRow(const WantedRow& row, Sampler* sampler);
  void Collect(absl::Time now, WakeList* wake);
  void CollectDecode(ActiveTurn* turn, const SampleResult& sample, absl::Time now, WakeList* wake);
  void CollectScores(ActiveTurn* turn, int first_row, int num_rows, absl::Time now, WakeList* wake);
  bool EndWithoutModel(ActiveTurn* turn, absl::Time now, WakeList* wake);
  void EndTurn(ActiveTurn* turn, FinishReason reason, int32_t token_id, int stop_string, absl::Time now,
               WakeList* wake);
  void FailTurn(ActiveTurn* turn, absl::Status status, absl::Time now, WakeList* wake);
  void CountAdmission(const ActiveTurn& turn, const TurnInfo& info);
  void CountEnd(const ActiveTurn& turn, TurnEnding end, absl::Time now);
  void DropUnfedPrompt(ActiveTurn* turn);
  void Release(ActiveTurn* turn, absl::Time now);
  std::span<const int32_t> SuppressedIds(const ActiveTurn& turn) const;

  const EngineModel& model_;
  Device& device_;
  const EngineOptions& options_;
  std::unique_ptr<SessionTable> sessions_;
  std::optional<Scheduler> scheduler_;
  std::unique_ptr<ModelStep> step_;
  std::vector<Sampler> samplers_;  // one per thread of the device's workers

  std::deque<std::unique_ptr<ActiveTurn>> waiting_;
  std::vector<std::unique_ptr<ActiveTurn>> running_;
  uint64_t next_arrival_ = 0;

  // Of the current step.
  struct PlannedRun {
    ActiveTurn* turn;
    int num_tokens;
    int first_logit;
    int num_logits;
    bool decode;
  };
  std::vector<SeqView> views_;
  StepPlan plan_;
  std::vector<PlannedRun> runs_;
  std::vector<WantedRow> rows_;
  std::vector<TargetScore> scores_;  // per row of a turn that scores: of the token that follows
  std::vector<SampleResult> samples_;
  std::vector<std::pair<int32_t, float>> top_;
  std::string text_;

  RunnerMetrics metrics_;
  absl::Time step_end_ = absl::InfinitePast();  // of the last step, when its tokens were there
  std::atomic<int64_t> outstanding_{0};
  std::atomic<int64_t> admissible_{0};
};

}  // namespace weir
