// AddressSanitizer's part in the emulator: nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace weir::emulator {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
inline void Poison(const void* address, size_t bytes) { __asan_poison_memory_region(address, bytes); }
inline void Unpoison(const void* address, size_t bytes) { __asan_unpoison_memory_region(address, bytes); }
#else
inline constexpr bool kAddressSanitizer = false;
inline void Poison(const void*, size_t) {}
inline void Unpoison(const void*, size_t) {}
#endif

}  // namespace weir::emulator
