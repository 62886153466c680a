// gRPC passes a reactor from the thread that made it to those that cancel and end it, under locks of its own.
// ThreadSanitizer does not see those, as the library is not instrumented; these two say where they are.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace weir {

// After the last access before the reactor goes to gRPC.
inline void HandOver([[maybe_unused]] void* reactor) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(reactor);
#endif
}

// Before the first access in a call from gRPC.
inline void TakeOver([[maybe_unused]] void* reactor) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(reactor);
#endif
}

}  // namespace weir
