#include "client/loadtest/loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weir {
namespace {

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

constexpr absl::Duration kLongestWait = absl::Seconds(3600);

}  // namespace

RealLoop::RealLoop() : start_(SteadyNanoseconds()) {}

absl::Duration RealLoop::Now() const { return absl::Nanoseconds(SteadyNanoseconds() - start_); }

void RealLoop::At(absl::Duration when, LoopTask task) {
  timers_.push({when, num_timers_++, std::move(task)});
}

void RealLoop::Post(LoopTask task) {
  const MutexLock lock(&mu_);
  inbox_.push_back(std::move(task));
  // A loop that runs looks again before it waits.
  if (std::exchange(waiting_, false)) posted_.NotifyOne();
}

std::vector<LoopTask> RealLoop::WaitForPosted() {
  const MutexLock lock(&mu_);
  while (inbox_.empty()) {
    const absl::Duration wait =
        timers_.empty() ? kLongestWait : std::min(timers_.top().when - Now(), kLongestWait);
    if (wait <= absl::ZeroDuration()) break;
    waiting_ = true;
    posted_.WaitFor(&mu_, absl::ToChronoNanoseconds(wait));
  }
  waiting_ = false;
  return std::exchange(inbox_, {});
}

void RealLoop::RunTimers() {
  // Only those that are due now, so that timers that set timers do not keep the posted ones waiting.
  const absl::Duration now = Now();
  while (!stopped_ && !timers_.empty() && timers_.top().when <= now) {
    LoopTask task = std::move(timers_.top().task);
    timers_.pop();
    task();
  }
}

void RealLoop::Run() {
  stopped_ = false;
  while (!stopped_) {
    std::vector<LoopTask> tasks = left_.empty() ? WaitForPosted() : std::exchange(left_, {});
    size_t done = 0;
    while (done < tasks.size() && !stopped_) tasks[done++]();
    left_.assign(std::make_move_iterator(tasks.begin() + static_cast<std::ptrdiff_t>(done)),
                 std::make_move_iterator(tasks.end()));
    RunTimers();
  }
}

}  // namespace weir
