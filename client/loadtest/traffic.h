// One phase of traffic: arrivals times workload, over a transport.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/loadtest/arrivals.h"
#include "client/loadtest/loop.h"
#include "client/loadtest/phase.h"
#include "client/loadtest/report.h"
#include "client/loadtest/traffic_tally.h"
#include "client/loadtest/transport.h"
#include "client/loadtest/workload.h"

namespace weir {

struct TrafficOptions {
  ArrivalKind arrivals = ArrivalKind::kClosed;
  int64_t concurrency = 1;  // closed loop: users
  double rate = 0;          // open loop: conversations due per second
  // Nothing is started once one of the two is reached; at least one of them is set. A conversation is one
  // request, or `turns` of the workload in a session of its own.
  absl::Duration duration = absl::InfiniteDuration();
  int64_t conversations = 0;                     // 0: no such limit
  absl::Duration warmup = absl::ZeroDuration();  // requests that are due before do not count
  absl::Duration think = absl::ZeroDuration();   // from the end of a turn to the next one of its session
  // How long requests may go on behind `duration` before they are cancelled.
  absl::Duration drain = absl::Seconds(30);
  absl::Duration timeout = absl::InfiniteDuration();  // of each call
  uint64_t seed = 0;                                  // of Poisson arrivals
  GoodputLimits limits = {};
};

class Conversation;

// A user whose request failed waits before the next one as long as the server advises, and at least 100 ms: a
// server that refuses is not flooded. Nothing is tried again but the deletion of a session whose cancelled
// turn still runs.
//
// After a call that lost its connection the server is asked for its information; when that fails too, the
// server is lost and the phase ends.
class TrafficPhase final : public LoadPhase {
 public:
  // All outlive the phase.
  TrafficPhase(const TrafficOptions& options, const Workload* workload, Transport* transport, Loop* loop);
  ~TrafficPhase() override;

  void Start(LoopTask done) override;
  void Interrupt() override;
  std::vector<LiveRow> Live() const override;

  // After `done`. Of all requests, and of those of one model of the workload.
  TrafficFigures Figures() const;
  TrafficFigures ModelFigures(size_t model) const;
  // Why there is no server any more; OK while there is one.
  const absl::Status& lost() const { return lost_; }

 private:
  friend class Conversation;

  // For conversations.
  bool stopping() const { return stopping_; }
  // Calls `count` with each tally that takes part: the model's, and that of all.
  template <class F>
  void Count(size_t model, F count) {
    count(tallies_[model]);
    if (tallies_.size() > 1) count(tallies_.back());
  }
  void CallFailed(size_t model, const absl::Status& status);
  void ConversationEnded(Conversation* conversation, absl::Duration at, const absl::Status& status);

  void StartConversation(absl::Duration scheduled);
  void ScheduleArrival();
  bool AllStarted() const;
  void EndSchedule();
  void ProbeServer();
  void Tick();
  void FinishIfIdle();
  TrafficFigures Described(const TrafficTally& tally) const;
  // `task`, unless the phase is gone by then.
  void At(absl::Duration when, void (TrafficPhase::*task)());

  const TrafficOptions options_;
  const Workload* const workload_;
  Transport* const transport_;
  Loop* const loop_;
  LoopTask done_;
  absl::Duration start_;
  absl::Duration last_;  // when the last conversation, or the schedule, ended
  OpenArrivals arrivals_;
  absl::Duration next_arrival_;
  std::vector<TrafficTally> tallies_;  // per model, then, where there are several, of all
  std::unordered_map<Conversation*, std::shared_ptr<Conversation>> conversations_;
  int64_t started_ = 0;
  bool schedule_over_ = false;  // nothing new is started
  bool stopping_ = false;       // what runs is cancelled
  bool finished_ = false;
  bool probing_ = false;
  absl::Status lost_;
  std::vector<int64_t> tokens_at_tick_;
  std::vector<double> last_rates_;
  absl::Duration last_tick_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weir
