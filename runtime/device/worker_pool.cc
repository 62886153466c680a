#include "runtime/device/worker_pool.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

#include "runtime/base/check.h"

namespace weir {
namespace {

// About 50 µs of polling: longer than the serial gaps within a step, shorter than a scheduler slice, so that
// a busy neighbour on the same core is not starved by our waiting.
constexpr int kSpinLimit = 2000;

void Pause() {
#if defined(__SSE__)
  _mm_pause();
#endif
}

}  // namespace

void FlushDenormalsOnThisThread() {
#if defined(__SSE__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

namespace {

// For the caller of ParallelFor, while its tasks run. Without it, bits would depend on who ran a task.
class ScopedFlushDenormals {
 public:
#if defined(__SSE__)
  ScopedFlushDenormals() : saved_(_mm_getcsr()) { FlushDenormalsOnThisThread(); }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }
#else
  ScopedFlushDenormals() { FlushDenormalsOnThisThread(); }
#endif
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  [[maybe_unused]] unsigned int saved_ = 0;
};

}  // namespace

WorkerPool::WorkerPool(int num_threads) {
  WEIR_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { WorkerLoop(i); });
}

WorkerPool::~WorkerPool() {
  stop_.store(true, std::memory_order_relaxed);
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::ParallelFor(int64_t num_tasks, FunctionRef<void(int64_t, int)> body) {
  if (num_tasks <= 0) return;
  const ScopedFlushDenormals flush;
  if (num_tasks == 1 || threads_.empty()) {
    for (int64_t task = 0; task < num_tasks; ++task) body(task, 0);
    return;
  }
  body_ = &body;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  open_.store(true, std::memory_order_seq_cst);
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  RunTasks(0);
  open_.store(false, std::memory_order_seq_cst);
  int spins = 0;
  for (int inside = inside_.load(std::memory_order_seq_cst); inside != 0;
       inside = inside_.load(std::memory_order_seq_cst)) {
    if (++spins < kSpinLimit)
      Pause();
    else
      inside_.wait(inside, std::memory_order_acquire);
  }
}

void WorkerPool::RunTasks(int thread) {
  while (true) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) return;
    (*body_)(task, thread);
  }
}

void WorkerPool::WorkerLoop(int thread) {
  FlushDenormalsOnThisThread();
  uint32_t seen = 0;
  while (true) {
    int spins = 0;
    while (region_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpinLimit)
        Pause();
      else
        region_.wait(seen, std::memory_order_acquire);
    }
    seen = region_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    inside_.fetch_add(1, std::memory_order_seq_cst);
    if (open_.load(std::memory_order_seq_cst)) RunTasks(thread);
    if (inside_.fetch_sub(1, std::memory_order_seq_cst) == 1) inside_.notify_one();
  }
}

}  // namespace weir
