// WorkerPool: the fixed set of threads that compute one step of a CPU device.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/function_ref.h"

namespace weir {

// Owned by the CPU device; ParallelFor is called by one thread at a time (the engine's), which works too.
// Workers spin for a bounded time between regions, then sleep. Denormals are zero in every task, whoever
// runs it: decaying states end there, and a denormal multiply costs a hundred ordinary ones.
class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);  // including the caller; at least 1
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs body(task, thread) for every task in [0, num_tasks) and returns when all are done. Which thread runs
  // a task is not fixed, so a task must not depend on it; `thread` in [0, num_threads) is for scratch memory
  // only. Never allocates. One task runs on the caller without waking anybody.
  void ParallelFor(int64_t num_tasks, FunctionRef<void(int64_t task, int thread)> body);

 private:
  void WorkerLoop(int thread);
  void RunTasks(int thread);

  std::vector<std::thread> threads_;
  const FunctionRef<void(int64_t, int)>* body_ = nullptr;
  int64_t num_tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<uint32_t> region_{0};  // a new value starts a region
  // A worker counts itself in before it looks whether the region is open, and the caller closes the region
  // before it looks whether anybody is in: so it waits for those who came, never for one that found no
  // processor to run on.
  alignas(64) std::atomic<int> inside_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> stop_{false};
};

// Sets flush-to-zero and denormals-are-zero for the calling thread, for good.
void FlushDenormalsOnThisThread();

}  // namespace weir
