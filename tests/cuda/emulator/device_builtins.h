// The device built-ins that nvcc provides: variables, barriers, warp operations, atomics, the launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda/emulator/device_interface.h"
#include "tests/cuda/emulator/device_math.h"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __constant__
#define __constant__
// Would be each thread's own.
#undef __shared__
#define __shared__ error_use_StaticShared_or_DynamicShared_instead_of_a_shared_variable

// Plain variables, rewritten at each switch of threads: as macros they would break
// cudaLaunchConfig_t::blockDim.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace weir::emulator {

enum class ShuffleKind : uint8_t { kIndex, kUp, kDown, kXor };

constexpr int ShuffleSource(ShuffleKind kind, int lane, int argument, int width) {
  const int first = lane & ~(width - 1);
  const int in_group = lane & (width - 1);
  switch (kind) {
    case ShuffleKind::kIndex:
      return first | (argument & (width - 1));
    case ShuffleKind::kUp:
      return in_group < argument ? lane : lane - argument;
    case ShuffleKind::kDown:
      return in_group + argument >= width ? lane : lane + argument;
    case ShuffleKind::kXor:
      return (lane ^ argument) < first + width ? lane ^ argument : lane;
  }
  return lane;
}

template <class T>
struct ShuffleLane {
  T in, out;
  int argument, width;
};

template <class T, ShuffleKind kKind>
void ExchangeLanes(void* const* lanes, unsigned mask) {
  for (int i = 0; i < warpSize; ++i) {
    if ((mask >> i & 1) == 0) continue;
    auto* const lane = static_cast<ShuffleLane<T>*>(lanes[i]);
    const int source = ShuffleSource(kKind, i, lane->argument, lane->width);
    if ((mask >> source & 1) == 0) FailLaneNotInMask(source, mask);
    lane->out = static_cast<ShuffleLane<T>*>(lanes[source])->in;
  }
}

template <ShuffleKind kKind, class T>
T Shuffle(unsigned mask, T value, int argument, int width, Site site) {
  static_assert(std::is_trivially_copyable_v<T>);
  ShuffleLane<T> lane{value, value, argument, width};
  WarpRendezvous(mask, &lane, &ExchangeLanes<T, kKind>, false, site);
  return lane.out;
}

enum class VoteKind : uint8_t { kBallot, kAny, kAll, kMatch, kAdd, kMax, kMin, kOr, kAnd, kXor };

template <class T>
struct VoteLane {
  T in;
  T out;
};

template <VoteKind kKind, class T>
T Combine(T a, T b) {
  switch (kKind) {
    case VoteKind::kAdd:
      return a + b;
    case VoteKind::kMax:
      return a > b ? a : b;
    case VoteKind::kMin:
      return a < b ? a : b;
    case VoteKind::kOr:
      return a | b;
    case VoteKind::kAnd:
      return a & b;
    default:
      return a ^ b;
  }
}

template <class T>
T LanesEqualTo(T value, void* const* lanes, unsigned mask) {
  unsigned equal = 0;
  for (int i = 0; i < warpSize; ++i)
    if ((mask >> i & 1) != 0 && static_cast<VoteLane<T>*>(lanes[i])->in == value) equal |= 1u << i;
  return static_cast<T>(equal);
}

template <VoteKind kKind, class T>
void VoteOfLanes(void* const* lanes, unsigned mask) {
  const auto lane = [lanes](int i) { return static_cast<VoteLane<T>*>(lanes[i]); };
  T result{};
  unsigned ballot = 0;
  bool first = true;
  for (int i = 0; i < warpSize; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if (lane(i)->in != 0) ballot |= 1u << i;
    result = first ? lane(i)->in : Combine<kKind, T>(result, lane(i)->in);
    first = false;
  }
  if constexpr (kKind == VoteKind::kBallot) result = static_cast<T>(ballot);
  if constexpr (kKind == VoteKind::kAny) result = ballot != 0;
  if constexpr (kKind == VoteKind::kAll) result = ballot == mask;
  for (int i = 0; i < warpSize; ++i) {
    if ((mask >> i & 1) == 0) continue;
    if constexpr (kKind == VoteKind::kMatch) result = LanesEqualTo(lane(i)->in, lanes, mask);
    lane(i)->out = result;
  }
}

template <VoteKind kKind, class T>
T Vote(unsigned mask, T value, Site site) {
  VoteLane<T> lane{value, value};
  WarpRendezvous(mask, &lane, &VoteOfLanes<kKind, T>, false, site);
  return lane.out;
}

inline void NoExchange(void* const*, unsigned) {}

// One thread runs at a time, so reading, combining and writing is atomic. Not inlined and not instrumented:
// the checker is told of one atomic access by the instruction after the call.
template <class T, class Operation>
__attribute__((noinline, no_sanitize("thread"))) T AtomicUpdate(T* address, T value, Operation operation) {
  OnAtomic(address, sizeof(T), __builtin_return_address(0));
  const T old = *address;
  *address = operation(old, value);
  return old;
}

}  // namespace weir::emulator

// ---- barriers and warp operations
using WeirSite = weir::emulator::Site;

inline void __syncthreads(WeirSite site = WeirSite::current()) {
  weir::emulator::BlockBarrier(weir::emulator::BarrierVote::kNone, 0, site);
}
inline int __syncthreads_or(int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::BlockBarrier(weir::emulator::BarrierVote::kOr, predicate, site);
}
inline int __syncthreads_and(int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::BlockBarrier(weir::emulator::BarrierVote::kAnd, predicate, site);
}
inline int __syncthreads_count(int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::BlockBarrier(weir::emulator::BarrierVote::kCount, predicate, site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, WeirSite site = WeirSite::current()) {
  char nothing = 0;
  weir::emulator::WarpRendezvous(mask, &nothing, &weir::emulator::NoExchange, true, site);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, WeirSite site = WeirSite::current()) {
  return weir::emulator::Shuffle<weir::emulator::ShuffleKind::kIndex>(mask, value, source, width, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 WeirSite site = WeirSite::current()) {
  return weir::emulator::Shuffle<weir::emulator::ShuffleKind::kUp>(mask, value, static_cast<int>(delta),
                                                                   width, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   WeirSite site = WeirSite::current()) {
  return weir::emulator::Shuffle<weir::emulator::ShuffleKind::kDown>(mask, value, static_cast<int>(delta),
                                                                     width, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, WeirSite site = WeirSite::current()) {
  return weir::emulator::Shuffle<weir::emulator::ShuffleKind::kXor>(mask, value, lanes, width, site);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kBallot>(mask, predicate != 0 ? 1u : 0u, site);
}
inline int __any_sync(unsigned mask, int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kAny>(mask, predicate, site);
}
inline int __all_sync(unsigned mask, int predicate, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kAll>(mask, predicate, site);
}
inline unsigned __match_any_sync(unsigned mask, unsigned value, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kMatch>(mask, value, site);
}
template <class T>
T __reduce_add_sync(unsigned mask, T value, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kAdd>(mask, value, site);
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kMax>(mask, value, site);
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, WeirSite site = WeirSite::current()) {
  return weir::emulator::Vote<weir::emulator::VoteKind::kMin>(mask, value, site);
}
inline unsigned __activemask() { return weir::emulator::ActiveMask(); }
inline void __threadfence() { weir::emulator::OnFence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { weir::emulator::OnFence(); }
[[noreturn]] inline void __trap() { weir::emulator::FailTrap(); }

// ---- atomics
template <class T>
__forceinline__ T atomicAdd(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
__forceinline__ T atomicSub(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return static_cast<T>(a - b); });
}
template <class T>
__forceinline__ T atomicMax(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return a > b ? a : b; });
}
template <class T>
__forceinline__ T atomicMin(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return a < b ? a : b; });
}
template <class T>
__forceinline__ T atomicExch(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T, T b) { return b; });
}
template <class T>
__forceinline__ T atomicOr(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return static_cast<T>(a | b); });
}
template <class T>
__forceinline__ T atomicAnd(T* address, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [](T a, T b) { return static_cast<T>(a & b); });
}
template <class T>
__forceinline__ T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return weir::emulator::AtomicUpdate(address, value, [expected](T a, T b) { return a == expected ? b : a; });
}
__forceinline__ unsigned atomicInc(unsigned* address, unsigned limit) {
  return weir::emulator::AtomicUpdate(address, limit,
                                      [](unsigned a, unsigned b) { return a >= b ? 0 : a + 1; });
}

// ---- launch, and the overloads that the toolkit declares for nvcc only
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  struct Bound {
    void (*kernel)(Params...);
    std::tuple<std::decay_t<Params>...> arguments;
  };
  auto bound = std::make_shared<Bound>(Bound{kernel, {std::forward<Args>(args)...}});
  const auto invoke = [](void* parameters) {
    auto* const b = static_cast<Bound*>(parameters);
    std::apply(b->kernel, b->arguments);
  };
  return weir::emulator::LaunchKernel(*config, reinterpret_cast<const void*>(kernel),
                                      {std::move(bound), sizeof(Bound), invoke});
}
template <class R, class... Params>
cudaError_t cudaFuncSetAttribute(R (*kernel)(Params...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class R, class... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, R (*kernel)(Params...)) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class R, class... Params>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, R (*kernel)(Params...), int block_size,
                                                          size_t shared_bytes) {
  return ::cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel),
                                                         block_size, shared_bytes);
}
