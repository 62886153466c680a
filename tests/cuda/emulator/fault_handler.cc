#include "tests/cuda/emulator/fault_handler.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/cuda/emulator/block.h"
#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/symbolize.h"

namespace weir::emulator {
namespace {

struct sigaction previous_segv, previous_bus;

// What the device thread's last fault was; the report is made outside the signal handler.
struct KernelFault {
  const void* address = nullptr;
  const void* pc = nullptr;
  bool write = false;
  bool general = false;  // the processor names no address: misaligned vector access
};
KernelFault kernel_fault;

[[noreturn]] void Die(const char* message) {
  static_cast<void>(!write(STDERR_FILENO, message, std::strlen(message)));
  std::abort();
}

void DescribePlace(const KernelFault& fault, char* text, size_t bytes) {
  uintptr_t base = 0;
  const Allocation* const allocation = DeviceHeap::Get().Find(fault.address, &base);
  const auto result = fmt::format_to_n(
      text, bytes - 1, "a {} at {}, {}, {}", fault.write ? "write" : "read", LineAt(fault.pc), fault.address,
      allocation != nullptr && allocation->freed  ? "in freed device memory"
      : DeviceHeap::Get().Contains(fault.address) ? "outside device memory"
                                                  : "which is no device memory");
  *result.out = '\0';
}

// Runs on the device thread's stack as if the faulting instruction had called it.
[[noreturn]] void ReportKernelFault() {
  static char text[512];
  DescribePlace(kernel_fault, text, sizeof(text));
  const char* const said = text;
  if (kernel_fault.general) {
    static char line[256];
    *fmt::format_to_n(line, sizeof(line) - 1, "{}", LineAt(kernel_fault.pc)).out = '\0';
    const char* const where = line;
    Fail(ReportKind::kMisaligned, "a misaligned access at {}", where);
  }
  Fail(DeviceHeap::Get().Contains(kernel_fault.address) ? ReportKind::kGlobalBounds : ReportKind::kHostMemory,
       "{}", said);
}

// True when the device thread goes on in ReportKernelFault.
bool Redirect([[maybe_unused]] const siginfo_t* info, [[maybe_unused]] void* context) {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  kernel_fault.address = info->si_addr;
  kernel_fault.pc = reinterpret_cast<const void*>(registers[REG_RIP]);
  kernel_fault.write = (registers[REG_ERR] & 2) != 0;
  kernel_fault.general = info->si_code == SI_KERNEL;
  // Below the red zone, and aligned as behind a call.
  registers[REG_RSP] = ((registers[REG_RSP] - 128) & ~greg_t{15}) - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&ReportKernelFault);
  return true;
#else
  return false;
#endif
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const void* const address = info->si_addr;
  if (current_thread != nullptr) {
    if (Block::Get().IsStackGuard(address))
      Die("CUDA emulator: a CUDA thread's local memory overflowed its stack\n");
    if (Redirect(info, context)) return;
  }
  if (DeviceHeap::Get().Contains(address)) Die("CUDA emulator: host code touches device memory\n");
  // Not ours: the instruction faults again, into whoever was here before.
  sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
}

class AlternateStack {
 public:
  AlternateStack() {
    stack_t old{};
    sigaltstack(nullptr, &old);
    if ((old.ss_flags & SS_DISABLE) == 0) return;  // AddressSanitizer's
    memory_ = std::malloc(kBytes);
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = kBytes;
    sigaltstack(&stack, nullptr);
  }
  ~AlternateStack() {
    if (memory_ == nullptr) return;
    stack_t stack{};
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, nullptr);
    std::free(memory_);
  }
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  static constexpr size_t kBytes = 64 << 10;
  void* memory_ = nullptr;
};

}  // namespace

void InstallFaultHandler() {
  struct sigaction action {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

void PrepareThreadForFaults() { static thread_local AlternateStack stack; }

}  // namespace weir::emulator
