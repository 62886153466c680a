#include "client/command/interrupt.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "client/command/exit_status.h"

namespace weir {
namespace {

constexpr int kWake = SIGUSR1;  // from the destructor

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt(CancelToken* token, absl::Duration grace) : token_(token), grace_(grace) {
  sigemptyset(&signals_);
  sigaddset(&signals_, kWake);
  for (const int signal : {SIGINT, SIGTERM})
    if (!IsIgnored(signal)) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread(&Interrupt::Watch, this);
}

Interrupt::~Interrupt() {
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
}

void Interrupt::Watch() {
  int first = 0;
  if (sigwait(&signals_, &first) != 0 || first == kWake) return;
  signal_.store(first);
  token_->Cancel();
  const timespec grace = absl::ToTimespec(grace_);
  if (sigtimedwait(&signals_, nullptr, &grace) != kWake) _exit(kExitSignal + first);
}

}  // namespace weir
