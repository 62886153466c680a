#include "server/frontend/executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace weir {

Executor::Executor(const Limits& limits) : limits_(limits) {
  for (int i = 0; i < std::max(1, limits.threads); ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() { Stop(); }

absl::Status Executor::Post(int64_t bytes, Task task) {
  {
    MutexLock lock(&mu_);
    if (stop_)
      return MakeError(absl::StatusCode::kUnavailable, "SHUTTING_DOWN", "the server is shutting down", {},
                       absl::Seconds(1));
    const bool full = static_cast<int>(line_.size()) >= limits_.max_tasks ||
                      (!line_.empty() && bytes_ + bytes > limits_.max_bytes);
    if (full)
      return MakeError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                       "too many requests wait to be tokenized; retry later",
                       {{"waiting", std::to_string(line_.size())},
                        {"capacity", std::to_string(limits_.max_tasks)},
                        {"waiting_bytes", std::to_string(bytes_)}},
                       absl::Seconds(1));
    bytes_ += bytes;
    line_.push_back({bytes, std::move(task)});
  }
  wake_.NotifyOne();
  return absl::OkStatus();
}

void Executor::Stop() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void Executor::Work() {
  for (;;) {
    Entry entry;
    {
      MutexLock lock(&mu_);
      while (line_.empty() && !stop_) wake_.Wait(&mu_);
      if (line_.empty()) return;
      entry = std::move(line_.front());
      line_.pop_front();
      bytes_ -= entry.bytes;
    }
    entry.task();
  }
}

}  // namespace weir
