// A library for LD_PRELOAD: the wall clock of a process, moved by as many seconds as the file that
// CLOCK_SHIM_FILE names says at the time (an int64). Only the wall clock: CLOCK_MONOTONIC goes on, as when
// somebody sets the time.
//
// Waits until a time of the wall clock (Abseil's, as futexes) get that time moved back, for the kernel's
// clock has not moved. A wait that has begun does not notice a jump, while the kernel would count it anew.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>

namespace {

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const std::atomic<int64_t>* MapOffset() {
  const char* path = std::getenv("CLOCK_SHIM_FILE");
  const int fd = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  void* page = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(page);
}

int64_t Offset() {
  static const std::atomic<int64_t>* const offset = MapOffset();
  return offset != nullptr ? offset->load(std::memory_order_relaxed) : 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += Offset();
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  static auto* const next = Next<int(timeval*, void*)>("gettimeofday");
  const int result = next(time, zone);
  if (result == 0 && time != nullptr) time->tv_sec += Offset();
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

long syscall(long number, ...) noexcept {
  static auto* const next = Next<long(long, ...)>("syscall");
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  timespec until;
  const bool waits = number == SYS_futex && (arguments[1] & FUTEX_CLOCK_REALTIME) != 0 && arguments[3] != 0;
  if (waits) {
    until = *reinterpret_cast<const timespec*>(arguments[3]);
    until.tv_sec -= Offset();
    arguments[3] = reinterpret_cast<long>(&until);
  }
  return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
