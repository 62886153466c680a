// A stack that can be left and resumed: one per CUDA thread, and one for the host thread that runs the
// kernel.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace weir::emulator {

class Fiber {
 public:
  using Entry = void (*)();

  // Begins at `entry`, which calls Entered first and never returns, when it is next switched to.
  void Start(char* stack, size_t bytes, Entry entry);
  // The host's side, before the first switch away from it: its stack is learnt by the first fiber entered.
  void BecomeHost();

  // Returns when someone switches back to `from`; never if it `ends` here.
  static void Switch(Fiber& from, Fiber& to, bool ends);
  static void Entered(Fiber& host);

 private:
  const void* stack_ = nullptr;
  size_t bytes_ = 0;
  void* sanitizer_frames_ = nullptr;  // what AddressSanitizer keeps of a fiber that is not running
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace weir::emulator
