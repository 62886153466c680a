// Looks at every load and store of kernels that were compiled with -fsanitize=thread: bounds, alignment,
// whose memory it is, whether shared memory was written before, and races. Who is ordered before whom: the
// block's barriers for all of its threads, __syncwarp for the lanes of a warp, __threadfence for other
// blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "tests/cuda/emulator/device_thread.h"
#include "tests/cuda/emulator/shared_memory.h"

namespace weir::emulator {

// kAsyncWrite: a cp.async that is on its way; kAsyncWritten: it has arrived.
enum class AccessKind : uint8_t { kRead, kWrite, kAtomic, kAsyncWrite, kAsyncWritten };

// Who touched a piece of memory last, and when.
struct AccessRecord {
  uint32_t block = 0;     // serial; 0: nobody
  uint32_t barriers = 0;  // that the block had passed
  uint32_t clock = 0;     // of the lane
  uint16_t thread = 0;
  uint8_t bytes = 0;  // a bit each
  bool atomic = false;
  bool on_its_way = false;
  const void* pc = nullptr;
};

// One byte of shared or four of global memory. Two reads, since a write races with either: the last, and the
// last of another warp in the same phase of the block.
struct ShadowCell {
  AccessRecord write, read, other_read;
};

// Pages of zeros that cost nothing until they are touched.
class ShadowMemory {
 public:
  explicit ShadowMemory(size_t cells);
  ~ShadowMemory();
  ShadowMemory(const ShadowMemory&) = delete;
  ShadowMemory& operator=(const ShadowMemory&) = delete;
  ShadowCell& operator[](size_t i) { return cells_[i]; }

 private:
  ShadowCell* cells_;
  size_t bytes_;
};

class MemoryChecker {
 public:
  static MemoryChecker& Get();

  void Check(const void* address, size_t bytes, AccessKind kind, const void* pc);
  void Forget(uintptr_t base) {
    global_.erase(base);
    recent_ = Recent{};
  }

 private:
  struct Access {
    uintptr_t address;
    size_t bytes;
    AccessKind kind;
    const void* pc;
    const char* space;  // "shared", "global"
  };

  // The device allocation that was accessed last: most accesses are to it.
  struct Recent {
    uintptr_t first = 1, end = 0;
    ShadowMemory* shadow = nullptr;
  };

  void CheckGlobal(const Access& access);
  void FindAllocation(const Access& access);
  void CheckShared(const Access& access);
  void CheckElsewhere(const Access& access) const;
  static void CheckAlignment(const Access& access, uintptr_t offset);
  void CheckCell(ShadowCell& cell, uint8_t bytes, const Access& access);
  static bool IsOrdered(const AccessRecord& before, bool shared);
  void ReportRace(const char* what, const AccessRecord& before, const Access& access);
  bool IsNew(const void* pc, const void* other);

  ShadowMemory shared_{SharedMemory::kArenaBytes};
  Recent recent_;
  std::map<uintptr_t, std::unique_ptr<ShadowMemory>> global_;  // by the allocation's first byte
  // Reported in this grid: once for each pair of places.
  std::set<std::pair<const void*, const void*>> reported_;
  uint32_t reported_grid_ = 0;
};

}  // namespace weir::emulator
