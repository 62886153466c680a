// Executor: the threads that validate and tokenize, so that neither a network thread nor the engine does.
#pragma once

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "runtime/base/mutex.h"

namespace weir {

// Owned by the Frontend. First come, first served; the line is bounded in calls and in bytes.
class Executor {
 public:
  using Task = absl::AnyInvocable<void()>;

  struct Limits {
    int threads = 2;
    int max_tasks = 1024;
    int64_t max_bytes = int64_t{64} << 20;  // request bytes that wait; one request alone always fits
  };

  explicit Executor(const Limits& limits);
  ~Executor();  // Stop()s

  // Any thread, never blocks. RESOURCE_EXHAUSTED (QUEUE_FULL) when the line is full, UNAVAILABLE after
  // Stop().
  absl::Status Post(int64_t bytes, Task task);
  // Runs what waits, then joins. Idempotent.
  void Stop();

 private:
  struct Entry {
    int64_t bytes = 0;
    Task task;
  };

  void Work();

  const Limits limits_;
  Mutex mu_;
  CondVar wake_;
  std::deque<Entry> line_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace weir
