#include "server/grpc/stream_watch.h"

#include <algorithm>
#include <vector>

#include "runtime/base/clock.h"

namespace weir {

StreamWatch::StreamWatch(absl::Duration limit) : limit_(limit), thread_([this] { Run(); }) {}

StreamWatch::~StreamWatch() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void StreamWatch::Add(Watched* stream, std::weak_ptr<Watched> weak) {
  MutexLock lock(&mu_);
  streams_.emplace(stream, std::move(weak));
}

void StreamWatch::Remove(Watched* stream) {
  MutexLock lock(&mu_);
  streams_.erase(stream);
}

int64_t StreamWatch::live() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(streams_.size());
}

void StreamWatch::Run() {
  const absl::Duration interval = std::clamp(limit_ / 8, absl::Milliseconds(10), absl::Seconds(1));
  std::vector<std::shared_ptr<Watched>> now_live;
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stop_) wake_.WaitFor(&mu_, absl::ToChronoNanoseconds(interval));
      if (stop_) return;
      for (const auto& [stream, weak] : streams_)
        if (auto strong = weak.lock()) now_live.push_back(std::move(strong));
    }
    const absl::Time now = MonotonicNow();
    for (const auto& stream : now_live) stream->CancelIfStuck(now, limit_);
    now_live.clear();
  }
}

}  // namespace weir
