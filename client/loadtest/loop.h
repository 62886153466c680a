// Loop: the one thread on which a load test runs, and the time by which it measures.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace weir {

using LoopTask = absl::AnyInvocable<void()>;

// Everything that a load test decides and counts happens in tasks of one Loop, one after the other, so none
// of it needs a lock. Times are counted from the Loop's making; nobody who sets the wall clock changes them.
class Loop {
 public:
  virtual ~Loop() = default;

  // Any thread.
  virtual absl::Duration Now() const = 0;
  // Runs `task` once it is `when` or later, those of the same time in the order of the calls; a time that has
  // passed counts as now. From a task, or before Run(). A task that is no longer wanted has to see that
  // itself.
  virtual void At(absl::Duration when, LoopTask task) = 0;
  // Runs `task` soon, after those that were posted before. Any thread.
  virtual void Post(LoopTask task) = 0;
  // Runs tasks on the calling thread until Stop(). May be called again; tasks that are left then run.
  virtual void Run() = 0;
  // From a task: Run() returns after it.
  virtual void Stop() = 0;
};

// On the steady clock. Tasks that are left at its end are dropped without being run.
class RealLoop final : public Loop {
 public:
  RealLoop();

  absl::Duration Now() const override;
  void At(absl::Duration when, LoopTask task) override;
  void Post(LoopTask task) override;
  void Run() override;
  void Stop() override { stopped_ = true; }

 private:
  struct Timer {
    absl::Duration when;
    uint64_t number;  // of the call, for those of one time
    // A priority_queue shows its top as const.
    mutable LoopTask task;
    bool operator<(const Timer& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  // What was posted, after waiting for it or for the next timer.
  std::vector<LoopTask> WaitForPosted();
  void RunTimers();

  const int64_t start_;  // ns of the steady clock
  // Of the loop's thread.
  std::priority_queue<Timer> timers_;
  uint64_t num_timers_ = 0;
  bool stopped_ = false;
  std::vector<LoopTask> left_;  // posted, not run when Stop() came

  Mutex mu_;
  CondVar posted_;
  std::vector<LoopTask> inbox_ ABSL_GUARDED_BY(mu_);
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir
