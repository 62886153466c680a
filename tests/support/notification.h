// Notification: one event, waited for by another thread. Not absl's, which ThreadSanitizer cannot see into.
#pragma once

#include "runtime/base/mutex.h"

namespace weir::testing {

class Notification {
 public:
  void Notify() {
    MutexLock lock(&mu_);
    notified_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(&mu_);
    while (!notified_) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir::testing
