// The devices' memory. Host code cannot touch it: it is inaccessible except while queued work runs. What was
// freed stays inaccessible for good, and so do the pages between allocations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/cuda/emulator/emulator.h"

namespace weir::emulator {

inline constexpr int kMaxDevices = 8;
inline constexpr size_t kAllocationUnit = size_t{2} << 20;  // what a device's free memory falls by

struct Allocation {
  size_t bytes = 0;
  int device = 0;
  bool freed = false;
};

class DeviceHeap {
 public:
  static DeviceHeap& Get();

  // Null when the device has not enough left. Filled with NaN.
  void* Allocate(int device, size_t bytes);
  // False when `data` is no live allocation.
  bool Free(void* data);
  size_t FreeBytes(int device) const;
  size_t LiveBytes() const { return live_bytes_; }
  // Reports each live allocation with a serial above `after`.
  void ReportLive() const;

  bool Contains(const void* address) const { return address >= first_ && address < end_; }
  // Live or freed; null when in none. `base`: its first byte.
  const Allocation* Find(const void* address, uintptr_t* base) const;
  // Reports, and sets the sticky error, unless all of it is in one live allocation.
  bool CheckRange(const void* address, size_t bytes, const char* what);
  // Bytes behind the allocations' ends must be as they were.
  void CheckGuards();

  void AddPinned(const void* data, size_t bytes) { pinned_[reinterpret_cast<uintptr_t>(data)] = bytes; }
  bool RemovePinned(const void* data) { return pinned_.erase(reinterpret_cast<uintptr_t>(data)) > 0; }
  bool IsPinned(const void* address, size_t bytes) const;

  // While one exists, queued work may touch device memory.
  class Access {
   public:
    Access() { Get().SetAccess(1); }
    ~Access() { Get().SetAccess(-1); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
  };

 private:
  DeviceHeap();
  void SetAccess(int change);
  static void Protect(uintptr_t base, size_t bytes, int protection);
  static void Fill(char* data, size_t bytes);

  char* first_ = nullptr;
  char* end_ = nullptr;
  size_t used_ = 0;  // address space, which is never used twice
  std::map<uintptr_t, Allocation> allocations_;
  std::map<uintptr_t, size_t> live_;  // base -> bytes
  std::map<uintptr_t, size_t> pinned_;
  std::array<size_t, kMaxDevices> charged_{};  // in units' bytes
  size_t live_bytes_ = 0;
  int accesses_ = 0;
};

// Zeroes device memory; large pieces are given back to the system instead, which reads as zeros.
void ZeroDeviceMemory(void* data, size_t bytes);

}  // namespace weir::emulator
