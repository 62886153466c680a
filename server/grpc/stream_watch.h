// StreamWatch: ends streams whose client has stopped reading for good.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace weir {

// gRPC tells nothing while a write is stuck in flow control, and the engine wakes only readers that wait for
// it. So one thread looks at all streams now and then. Owned by the server; outlives the streams.
class StreamWatch {
 public:
  class Watched {
   public:
    virtual ~Watched() = default;
    // Cancels the call when its write has been outstanding for longer than `limit`.
    virtual void CancelIfStuck(absl::Time now, absl::Duration limit) = 0;
  };

  // `limit`: the engine's own stall limit and a grace in which a reader that comes back still gets its
  // status.
  explicit StreamWatch(absl::Duration limit);
  ~StreamWatch();

  void Add(Watched* stream, std::weak_ptr<Watched> weak);
  void Remove(Watched* stream);
  // Streams that are not done yet.
  int64_t live() const;

 private:
  void Run();

  const absl::Duration limit_;
  mutable Mutex mu_;
  CondVar wake_;
  absl::flat_hash_map<Watched*, std::weak_ptr<Watched>> streams_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir
