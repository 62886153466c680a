// What emulated device code calls. Every emulated .cu file includes it, so it brings no heavy header.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>

namespace weir::emulator {

// Where device code stands. A default argument of every synchronising built-in, so that it is the caller's
// line.
using Site = std::source_location;

enum class BarrierVote : uint8_t { kNone, kOr, kAnd, kCount };

// Waits until all threads of the block have come to the same site; the vote of all `predicate`s.
int BlockBarrier(BarrierVote vote, int predicate, Site site);

// Reads and writes what the lanes brought; lanes[i] is null unless bit i of mask is set.
using WarpFunction = void (*)(void* const* lanes, unsigned mask);

// Waits until all lanes of `mask` are here with the same mask, function and site, then one of them runs
// `function`. `orders_memory`: what the lanes wrote before is visible to them after (__syncwarp; a shuffle
// promises nothing).
void WarpRendezvous(unsigned mask, void* mine, WarpFunction function, bool orders_memory, Site site);
unsigned ActiveMask();

// Accesses that a compiler does not instrument. `pc`: the device code's instruction.
void OnRead(const void* address, size_t bytes, const void* pc);
void OnWrite(const void* address, size_t bytes, const void* pc);
void OnAtomic(const void* address, size_t bytes, const void* pc);
// The bytes that a cp.async writes, from the instruction until the wait for it is over.
void OnAsyncWrite(const void* address, size_t bytes, const void* pc);
void OnAsyncWritten(const void* address, size_t bytes, const void* pc);
// __threadfence: what this block wrote is visible to blocks that see it is done.
void OnFence();

void* DynamicSharedBytes();
// One piece of memory per tag and kernel.
void* StaticSharedBytes(const void* tag, size_t bytes, size_t alignment);

void AsyncCopy16(void* dst, const void* src, bool valid);
void AsyncCommit();
// Until at most `pending` committed groups are on their way.
void AsyncWait(int pending);

// Errors that built-ins in headers find. The running block ends.
[[noreturn]] void FailTrap();
[[noreturn]] void FailLaneNotInMask(int lane, unsigned mask);
[[noreturn]] void FailPartialWarp(const char* operation, unsigned mask);
void CheckMatrixRow(const void* row, Site site);

// A kernel with its arguments, as one object that is the emulated parameter space.
struct KernelCall {
  std::shared_ptr<void> parameters;
  size_t bytes = 0;
  void (*invoke)(void* parameters) = nullptr;  // one CUDA thread
};

cudaError_t LaunchKernel(const cudaLaunchConfig_t& config, const void* kernel, KernelCall call);

}  // namespace weir::emulator
