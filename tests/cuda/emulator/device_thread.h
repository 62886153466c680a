// One CUDA thread of the block that runs.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/cuda/emulator/device_interface.h"
#include "tests/cuda/emulator/fiber.h"

namespace weir::emulator {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kMaxBlockThreads = 1024;

enum class ThreadPhase : uint8_t { kReady, kAtBarrier, kInWarp, kDone };

// A cp.async on its way.
struct AsyncCopy {
  void* dst;
  const void* src;  // null: zeros
  bool early;       // the bytes were moved at once
};

struct DeviceThread {
  uint3 index;
  unsigned linear, lane, warp;
  Fiber fiber;
  char* stack;  // its lowest address
  ThreadPhase phase;
  Site site;  // where it waits
  // What it brought to the warp operation that it waits in.
  unsigned mask;
  void* brought;
  WarpFunction function;
  // What this thread knows of its warp's progress; grows at operations that order memory.
  std::array<uint32_t, kWarpLanes> clock;
  std::vector<AsyncCopy> open_copies;
  std::deque<std::vector<AsyncCopy>> committed_copies;
};

// Of the calling OS thread: null while host code runs. Thread-local, since other host threads go on
// meanwhile.
extern constinit thread_local DeviceThread* current_thread;

}  // namespace weir::emulator
