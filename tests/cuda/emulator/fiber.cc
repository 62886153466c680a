#include "tests/cuda/emulator/fiber.h"

#include <cstdint>

#include "tests/cuda/emulator/sanitizer.h"

#if defined(__x86_64__)
// void weir_switch_stacks(void** save, void* to): the registers that a callee keeps go on the stack that is
// left.
extern "C" void weir_switch_stacks(void** save, void* to);
asm(R"(
.text
.globl weir_switch_stacks
.type weir_switch_stacks, @function
weir_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size weir_switch_stacks, .-weir_switch_stacks
)");
#endif

namespace weir::emulator {

#if defined(__x86_64__)
void Fiber::Start(char* stack, size_t bytes, Entry entry) {
  stack_ = stack;
  bytes_ = bytes;
  // As after a call: at the entry's first instruction, rsp + 8 is a multiple of 16.
  void** top = reinterpret_cast<void**>(stack + bytes) - 1;
  *top = nullptr;  // no return address: the entry never returns
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
}
#else
void Fiber::Start(char* stack, size_t bytes, Entry entry) {
  stack_ = stack;
  bytes_ = bytes;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}
#endif

void Fiber::BecomeHost() {
  stack_ = nullptr;
  bytes_ = 0;
}

void Fiber::Switch(Fiber& from, Fiber& to, [[maybe_unused]] bool ends) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.sanitizer_frames_, to.stack_, to.bytes_);
#endif
#if defined(__x86_64__)
  weir_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.sanitizer_frames_, nullptr, nullptr);
#endif
}

void Fiber::Entered([[maybe_unused]] Fiber& host) {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (host.bytes_ != 0) return;
  host.stack_ = stack;
  host.bytes_ = bytes;
#endif
}

}  // namespace weir::emulator
