// Ctrl-C: a thread waits for the signal and cancels the call; nothing runs in signal context.
#pragma once

#include <signal.h>

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "client/cancel_token.h"

namespace weir {

// Made before the first other thread, which inherits the blocked signals. SIGINT and SIGTERM cancel `token`;
// when the process has not ended `grace` later, or at a second signal, it is ended. Signals that were
// ignored when the process started, as for jobs in the background, stay so.
class Interrupt {
 public:
  Interrupt(CancelToken* token, absl::Duration grace);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // The signal that came, or 0.
  int signal() const { return signal_.load(); }

 private:
  void Watch();

  CancelToken* const token_;
  const absl::Duration grace_;
  sigset_t signals_;
  std::atomic<int> signal_{0};
  std::thread thread_;
};

}  // namespace weir
