// Arithmetic intrinsics. The _rn forms round as on the GPU, so they have its bits; the fast ones compute by
// the GPU's formula, so that errors grow alike, but are not equal to the bit.
#pragma once

#include <time.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace weir::emulator {

inline float FastExp(float x) { return ::exp2f(x * 1.44269504088896340736f); }
inline float FastLog(float x) { return ::log2f(x) * 0.693147180559945309417f; }
inline float FastPow(float x, float y) { return ::exp2f(y * ::log2f(x)); }

template <class To, class From>
To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace weir::emulator

// glibc declares functions of these names without defining them; only a macro can take their place.
#define __expf(x) ::weir::emulator::FastExp(x)
#define __logf(x) ::weir::emulator::FastLog(x)
#define __powf(x, y) ::weir::emulator::FastPow(x, y)
#define __exp2f(x) ::exp2f(x)
#define __exp10f(x) ::exp10f(x)
#define __log2f(x) ::log2f(x)
#define __log10f(x) ::log10f(x)
#define __sinf(x) ::sinf(x)
#define __cosf(x) ::cosf(x)

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
// Correctly rounded: in double, the quotient's error is far below half an ulp of float.
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __saturatef(float x) { return x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }  // of NaN: 0
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return weir::emulator::BitCast<unsigned>(x); }
inline int __float_as_int(float x) { return weir::emulator::BitCast<int>(x); }
inline float __uint_as_float(unsigned x) { return weir::emulator::BitCast<float>(x); }
inline float __int_as_float(int x) { return weir::emulator::BitCast<float>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}

// Loads and stores with a hint. Inlined, so that the line of an access is the caller's.
template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}
template <class T>
__forceinline__ T __ldcs(const T* address) {
  return *address;
}
template <class T>
__forceinline__ T __ldcg(const T* address) {
  return *address;
}
template <class T>
__forceinline__ void __stcs(T* address, T value) {
  *address = value;
}

inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long min(long a, long b) { return b < a ? b : a; }
inline long max(long a, long b) { return a < b ? b : a; }
inline unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
inline unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return b < a ? b : a; }
inline long long max(long long a, long long b) { return a < b ? b : a; }
inline float min(float a, float b) { return ::fminf(a, b); }
inline float max(float a, float b) { return ::fmaxf(a, b); }

// Counts nanoseconds here, cycles there.
inline long long clock64() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}
inline size_t __cvta_generic_to_shared(const void* address) { return reinterpret_cast<size_t>(address); }
