// GrowthPhase: brings sessions of one model to given positions and watches the server's memory meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/loadtest/growth_figures.h"
#include "client/loadtest/growth_plan.h"
#include "client/loadtest/latency_histogram.h"
#include "client/loadtest/other_clients.h"
#include "client/loadtest/phase.h"
#include "client/loadtest/session_pool.h"
#include "client/loadtest/transport.h"

namespace weir {

struct GrowthOptions : GrowthWay {
  std::string model;   // its id
  std::string server;  // its address, for messages
  int32_t vocab_size = 0;
  bool by_append = true;  // false: the tokens are generated
  uint64_t seed = 0;
  absl::Duration sample_interval = absl::Seconds(1);
};

// INVALID_ARGUMENT names what is wrong with the options.
absl::Status CheckGrowthOptions(const GrowthOptions& options);

// Every session gets a piece, and when all have it, nothing runs: that is when memory is read for the slopes
// (a sample at rest). While turns run it is read each sample_interval, for the picture only. At each position
// a few tokens are generated in all sessions at once: what they move the position by is part of the way to
// the next one. Measured are the samples from GrowthPlan::measured_from on. Each reading also shows what
// other clients have had the server do since the sessions were made.
//
// The model's context limit, and a refusal, ends the growth for all sessions: turns that run are waited for,
// memory is read once more, and the sessions are deleted. On the Loop's thread; the transport outlives it.
class GrowthPhase final : public LoadPhase {
 public:
  // The options have passed CheckGrowthOptions.
  GrowthPhase(GrowthOptions options, Loop* loop, Transport* transport);
  ~GrowthPhase() override;

  void Start(LoopTask done) override;
  void Interrupt() override;
  std::vector<LiveRow> Live() const override;

  // After `done`.
  const GrowthFigures& figures() const { return figures_; }
  // OK, or that the server could not be reached any more, and what was measured until then.
  absl::Status lost() const;

 private:
  class Turn;
  struct GrowingSession {
    std::string id;
    int64_t position = 0;
    int64_t turns = 0;
  };

  bool Stopping() const { return interrupted_ || figures_.stopped.has_value(); }
  // Calls `step` next, or Finish() when the growth has ended.
  void Then(void (GrowthPhase::*step)());
  // The growth ends, for the first reason that is given.
  void StopWith(int64_t position, const absl::Status& status);

  void Begin();  // all sessions are there
  // What other clients hold already, once nothing runs.
  void ReadOthers(int attempts);
  void NextRound();   // towards the current position
  void AfterRound();  // at rest
  void AtPosition();  // the accounting of all sessions
  void MeasureLatency();
  void AfterLatency();
  void Finish();

  // One turn in every session: `prompt` and `generate` tokens.
  void RunTurns(int64_t prompt, int64_t generate, LatencyHistogram* gaps, LoopTask finished);
  void StartTurn(int64_t index, int64_t prompt, int64_t generate, LatencyHistogram* gaps,
                 std::function<void()> done);
  void EndTurn(int64_t index, int64_t expected, const TurnResult& end);
  // Reads memory while nothing runs, and then goes on.
  void SampleAtRest(int attempts, LoopTask then);
  void SampleAgain(int attempts, LoopTask then);
  void TakeSampleAtRest(MemorySample sample, absl::Duration at);
  void SampleWhileRunning();
  // Of sessions 0 to count - 1.
  void ReadAccounting(int64_t count, LoopTask then);
  int64_t TokensNow() const;
  int64_t LeastPosition() const;
  void Conclude();

  const GrowthOptions options_;
  const GrowthPlan plan_;
  Loop* const loop_;
  Transport* const transport_;
  LoopTask done_;
  GrowthFigures figures_;
  SessionPool pool_;
  std::vector<int64_t> positions_;  // of the sessions
  std::vector<std::unique_ptr<Turn>> turns_;
  size_t mark_ = 0;        // of options_.positions
  bool running_ = false;   // turns do
  bool sampling_ = false;  // while turns run
  bool interrupted_ = false;
  bool turn_failed_ = false;  // so that it is not known what the server has computed for this load test
  int64_t round_target_ = 0;  // tokens of all sessions when the round is over
  OtherClients others_;
  std::optional<MemorySample> rest_;  // the latest at rest
  GrowthPoint point_;
  LatencyHistogram gaps_;
  // Until the growth ends. The timer and the calls that it made look at this before they touch anything.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weir
