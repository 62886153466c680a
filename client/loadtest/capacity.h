// CapacityPhase: how many sessions of a model a server holds, and what happens to the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/loadtest/capacity_figures.h"
#include "client/loadtest/latency_histogram.h"
#include "client/loadtest/phase.h"
#include "client/loadtest/session_pool.h"
#include "client/loadtest/transport.h"
#include "client/loadtest/witnesses.h"

namespace weir {

struct CapacityOptions {
  std::string model;  // its id
  int32_t vocab_size = 0;
  uint64_t seed = 0;
};

// Opens sessions until the server refuses one; has each of them generate one token; sees that one more is
// refused, that one is accepted after one was deleted, and deletes all. On the Loop's thread; the transport
// outlives it.
class CapacityPhase final : public LoadPhase {
 public:
  CapacityPhase(CapacityOptions options, Loop* loop, Transport* transport);
  ~CapacityPhase() override;

  void Start(LoopTask done) override;
  void Interrupt() override;
  std::vector<LiveRow> Live() const override;

  // After `done`.
  const CapacityFigures& figures() const { return figures_; }
  // OK, or why the server could not be reached any more.
  const absl::Status& lost() const { return lost_; }

 private:
  class Turn;
  using WithSample =
      std::function<void(const MemorySample& sample, int64_t slots_total, int64_t slots_free, int64_t steps)>;

  // What the server says of the model; a failure ends the phase.
  void ReadServer(WithSample then);
  void Open(int64_t slots_free);
  void CheckRefusal(int64_t slots_free);
  void Generate(int64_t steps_before);
  void StartTurn(int64_t index, std::function<void()> done);
  void OneMore();
  void DeleteOne();
  void Finish();
  // The first reason counts.
  void Fail(std::string why);
  void Fail(std::string_view what, const absl::Status& status);
  bool Stopping() const { return interrupted_ || !figures_.failure.empty(); }

  const CapacityOptions options_;
  Loop* const loop_;
  Transport* const transport_;
  LoopTask done_;
  CapacityFigures figures_;
  SessionPool pool_;
  LatencyHistogram create_, first_token_;
  std::vector<std::unique_ptr<Turn>> turns_;
  int64_t running_ = 0;
  int64_t errors_ = 0;
  bool interrupted_ = false;
  absl::Status lost_;
};

}  // namespace weir
