// The memory hooks of programs without the checker.
#include "tests/cuda/emulator/device_interface.h"
#include "tests/cuda/emulator/memory_hooks.h"

namespace weir::emulator {

void OnRead(const void*, size_t, const void*) {}
void OnWrite(const void*, size_t, const void*) {}
void OnAtomic(const void*, size_t, const void*) {}
void OnAsyncWrite(const void*, size_t, const void*) {}
void OnAsyncWritten(const void*, size_t, const void*) {}
bool HasMemoryChecker() { return false; }
void OnDeviceFree(uintptr_t) {}

}  // namespace weir::emulator
