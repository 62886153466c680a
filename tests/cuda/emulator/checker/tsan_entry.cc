// What the compiler calls from code that it instruments for ThreadSanitizer, whose library is not linked.
// Loads and stores go to the memory checker; what else host code of such a file needs just works.
#include <cstddef>
#include <cstdint>

#include "tests/cuda/emulator/device_interface.h"

using weir::emulator::OnRead;
using weir::emulator::OnWrite;

// The macros stand for functions that differ in a number or an operation in their names.
#define WEIR_CALLER __builtin_return_address(0)

#define WEIR_ACCESSES(prefix, bytes)                                                        \
  void __tsan_##prefix##read##bytes(void* address) { OnRead(address, bytes, WEIR_CALLER); } \
  void __tsan_##prefix##write##bytes(void* address) { OnWrite(address, bytes, WEIR_CALLER); }
#define WEIR_ACCESSES_OF_ALL_SIZES(prefix) \
  WEIR_ACCESSES(prefix, 1)                 \
  WEIR_ACCESSES(prefix, 2) WEIR_ACCESSES(prefix, 4) WEIR_ACCESSES(prefix, 8) WEIR_ACCESSES(prefix, 16)

#define WEIR_ATOMIC_UPDATE(bits, operation)                                                               \
  uint##bits##_t __tsan_atomic##bits##_fetch_##operation(volatile void* a, uint##bits##_t value, int) {   \
    return __atomic_fetch_##operation(static_cast<volatile uint##bits##_t*>(a), value, __ATOMIC_SEQ_CST); \
  }
#define WEIR_ATOMICS(bits)                                                                                   \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile void* a, int) {                                   \
    return __atomic_load_n(static_cast<const volatile uint##bits##_t*>(a), __ATOMIC_SEQ_CST);                \
  }                                                                                                          \
  void __tsan_atomic##bits##_store(volatile void* a, uint##bits##_t value, int) {                            \
    __atomic_store_n(static_cast<volatile uint##bits##_t*>(a), value, __ATOMIC_SEQ_CST);                     \
  }                                                                                                          \
  uint##bits##_t __tsan_atomic##bits##_exchange(volatile void* a, uint##bits##_t value, int) {               \
    return __atomic_exchange_n(static_cast<volatile uint##bits##_t*>(a), value, __ATOMIC_SEQ_CST);           \
  }                                                                                                          \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile void* a, void* expected, uint##bits##_t value, \
                                                     int, int) {                                             \
    return __atomic_compare_exchange_n(static_cast<volatile uint##bits##_t*>(a),                             \
                                       static_cast<uint##bits##_t*>(expected), value, false,                 \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                  \
  }                                                                                                          \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile void* a, void* expected, uint##bits##_t value,   \
                                                   int success, int failure) {                               \
    return __tsan_atomic##bits##_compare_exchange_strong(a, expected, value, success, failure);              \
  }                                                                                                          \
  WEIR_ATOMIC_UPDATE(bits, add)                                                                              \
  WEIR_ATOMIC_UPDATE(bits, sub)                                                                              \
  WEIR_ATOMIC_UPDATE(bits, and) WEIR_ATOMIC_UPDATE(bits, or) WEIR_ATOMIC_UPDATE(bits, xor)

extern "C" {

WEIR_ACCESSES_OF_ALL_SIZES()
WEIR_ACCESSES_OF_ALL_SIZES(unaligned_)
WEIR_ACCESSES_OF_ALL_SIZES(volatile_)
WEIR_ACCESSES_OF_ALL_SIZES(unaligned_volatile_)
void __tsan_read_range(void* address, size_t bytes) { OnRead(address, bytes, WEIR_CALLER); }
void __tsan_write_range(void* address, size_t bytes) { OnWrite(address, bytes, WEIR_CALLER); }

WEIR_ATOMICS(8)
WEIR_ATOMICS(16)
WEIR_ATOMICS(32)
WEIR_ATOMICS(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

}  // extern "C"
