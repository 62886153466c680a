// SimulatedLoop: a Loop whose time jumps to the next task, so that a minute of load takes milliseconds and
// every latency is exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "client/loadtest/loop.h"

namespace weir::testing {

// One thread. Run() also returns when nothing is left to be done.
class SimulatedLoop final : public Loop {
 public:
  absl::Duration Now() const override { return now_; }
  void At(absl::Duration when, LoopTask task) override {
    tasks_.emplace(std::make_pair(when < now_ ? now_ : when, number_++), std::move(task));
  }
  void Post(LoopTask task) override { At(now_, std::move(task)); }
  void Run() override {
    stopped_ = false;
    while (!stopped_ && !tasks_.empty()) {
      auto next = tasks_.extract(tasks_.begin());
      now_ = std::max(now_, next.key().first);
      next.mapped()();
    }
  }
  void Stop() override { stopped_ = true; }

  // From a task: nothing else happens meanwhile, as when the process gets no CPU.
  void Sleep(absl::Duration time) { now_ += time; }

  bool idle() const { return tasks_.empty(); }

 private:
  absl::Duration now_;
  uint64_t number_ = 0;
  bool stopped_ = false;
  std::map<std::pair<absl::Duration, uint64_t>, LoopTask> tasks_;
};

}  // namespace weir::testing
