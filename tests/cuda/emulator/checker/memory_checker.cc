#include "tests/cuda/emulator/checker/memory_checker.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cuda/emulator/block.h"
#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/memory_hooks.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/shared_memory.h"
#include "tests/cuda/emulator/symbolize.h"

// The linker's names for where the program begins and ends: its constants and variables.
extern "C" char __executable_start, _end;

namespace weir::emulator {
namespace {

constexpr size_t kGlobalCellBytes = 4;
constexpr size_t kLargestVector = 16;

const char* Verb(AccessKind kind) { return kind == AccessKind::kRead ? "read" : "write"; }

bool IsOfProgram(const void* address) { return address >= &__executable_start && address < &_end; }

}  // namespace

MemoryChecker& MemoryChecker::Get() {
  static MemoryChecker* const checker = new MemoryChecker;
  return *checker;
}

ShadowMemory::ShadowMemory(size_t cells) : bytes_(cells * sizeof(ShadowCell)) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fmt::print(stderr, "CUDA emulator: no address space for the memory checker\n");
    std::abort();
  }
  cells_ = static_cast<ShadowCell*>(memory);
}
ShadowMemory::~ShadowMemory() { munmap(cells_, bytes_); }

void MemoryChecker::Check(const void* address, size_t bytes, AccessKind kind, const void* pc) {
  if (current_thread == nullptr || Block::Get().in_warp_function()) return;
  Access access{reinterpret_cast<uintptr_t>(address), bytes, kind, pc, "global"};
  if (Block::Get().IsStack(address)) {
    if (!Block::OwnsStack(*current_thread, address)) {
      const std::string line = LineOfCall(pc);
      Note(ReportKind::kHostMemory, "access to another thread's local memory at {}", line);
    }
  } else if (DeviceHeap::Get().Contains(address)) {
    CheckGlobal(access);
  } else if (SharedMemory::Get().Contains(address)) {
    access.space = "shared";
    CheckShared(access);
  } else {
    CheckElsewhere(access);
  }
}

// Names of places are of the process's lifetime: Fail leaves the stack as it is.
static const char* Kept(std::string text) {
  static std::set<std::string>* const kept = new std::set<std::string>;
  return kept->insert(std::move(text)).first->c_str();
}

void MemoryChecker::CheckAlignment(const Access& access, uintptr_t offset) {
  const size_t n = access.bytes;
  if (n > kLargestVector || (n & (n - 1)) != 0 || offset % n == 0) return;
  Fail(ReportKind::kMisaligned, "{}-byte {} at a misaligned {} address, at {}", n, Verb(access.kind),
       access.space, Kept(LineOfCall(access.pc)));
}

void MemoryChecker::FindAllocation(const Access& access) {
  uintptr_t base = 0;
  const Allocation* const allocation =
      DeviceHeap::Get().Find(reinterpret_cast<const void*>(access.address), &base);
  if (allocation == nullptr || allocation->freed || access.address + access.bytes > base + allocation->bytes)
    Fail(ReportKind::kGlobalBounds, "{}-byte {} at {:#x}, {} device memory, at {}", access.bytes,
         Verb(access.kind), access.address,
         allocation != nullptr && allocation->freed ? "in freed" : "outside", Kept(LineOfCall(access.pc)));
  auto& shadow = global_[base];
  if (shadow == nullptr) shadow = std::make_unique<ShadowMemory>(allocation->bytes / kGlobalCellBytes + 1);
  recent_ = {base, base + allocation->bytes, shadow.get()};
}

void MemoryChecker::CheckGlobal(const Access& access) {
  if (access.address < recent_.first || access.address + access.bytes > recent_.end) FindAllocation(access);
  CheckAlignment(access, access.address);
  ShadowMemory& shadow = *recent_.shadow;
  for (size_t i = 0; i < access.bytes;) {
    const size_t offset = access.address - recent_.first + i;
    const size_t in_cell = offset % kGlobalCellBytes;
    const size_t n = std::min(access.bytes - i, kGlobalCellBytes - in_cell);
    CheckCell(shadow[offset / kGlobalCellBytes], static_cast<uint8_t>(((1u << n) - 1) << in_cell), access);
    i += n;
  }
}

void MemoryChecker::CheckShared(const Access& access) {
  SharedMemory& memory = SharedMemory::Get();
  const size_t offset = memory.Offset(reinterpret_cast<const void*>(access.address));
  if (!memory.IsAllocated(offset, access.bytes))
    Fail(ReportKind::kSharedBounds, "{}-byte {} outside the block's shared memory{}, at {}", access.bytes,
         Verb(access.kind), Kept(memory.DescribeOutside(offset)), Kept(LineOfCall(access.pc)));
  CheckAlignment(access, offset);
  for (size_t i = 0; i < access.bytes; ++i) {
    ShadowCell& cell = shared_[offset + i];
    if ((access.kind == AccessKind::kRead || access.kind == AccessKind::kAtomic) &&
        cell.write.block != Block::Get().serial()) {
      if (IsNew(access.pc, nullptr))
        Note(ReportKind::kUninitialised, "shared memory that nobody wrote is read at {}",
             LineOfCall(access.pc));
      return;
    }
    CheckCell(cell, 1, access);
  }
}

// Constants and variables of the program, the kernel's arguments, pinned memory of the host.
void MemoryChecker::CheckElsewhere(const Access& access) const {
  const void* const address = reinterpret_cast<const void*>(access.address);
  if (IsOfProgram(address) || DeviceHeap::Get().IsPinned(address, access.bytes)) return;
  if (access.kind == AccessKind::kRead && Block::Get().IsParameter(address)) return;
  Fail(ReportKind::kHostMemory, "a kernel's {} of host memory at {:#x}, at {}", Verb(access.kind),
       access.address, Kept(LineOfCall(access.pc)));
}

bool MemoryChecker::IsOrdered(const AccessRecord& before, bool shared) {
  const Block& block = Block::Get();
  if (before.block < block.first_serial_of_grid()) return true;  // also: nobody
  if (before.block != block.serial()) return shared || block.Fenced(before.block);
  if (before.on_its_way) return false;  // of this very thread too
  const DeviceThread& me = *current_thread;
  if (before.thread == me.linear || before.barriers != block.barriers_passed()) return true;
  return before.thread / kWarpLanes == me.warp && me.clock[before.thread % kWarpLanes] >= before.clock;
}

bool MemoryChecker::IsNew(const void* pc, const void* other) {
  if (reported_grid_ != Block::Get().first_serial_of_grid()) reported_.clear();
  reported_grid_ = Block::Get().first_serial_of_grid();
  return reported_.insert({pc, other}).second;
}

void MemoryChecker::ReportRace(const char* what, const AccessRecord& before, const Access& access) {
  if (!IsNew(access.pc, before.pc)) return;
  Note(ReportKind::kRace, "{} race in {} memory at {:#x}: {} here, by thread {}{} at {}", what, access.space,
       access.address, LineOfCall(access.pc), before.thread,
       before.block == Block::Get().serial() ? "" : " of another block", LineOfCall(before.pc));
}

void MemoryChecker::CheckCell(ShadowCell& cell, uint8_t bytes, const Access& access) {
  const bool shared = access.space[0] == 's';
  const auto races_with = [&](const AccessRecord& before) {
    return (before.bytes & bytes) != 0 && !IsOrdered(before, shared);
  };
  if (access.kind == AccessKind::kAsyncWritten) {
    cell.write.on_its_way = false;  // what raced with it was reported then
    cell.write.barriers = Block::Get().barriers_passed();
    cell.write.clock = current_thread->clock[current_thread->lane];
    return;
  }
  const bool both_atomic = access.kind == AccessKind::kAtomic && cell.write.atomic;
  if (!both_atomic && races_with(cell.write))
    ReportRace(access.kind == AccessKind::kRead ? "read-after-write" : "write-after-write", cell.write,
               access);
  const DeviceThread& me = *current_thread;
  const AccessRecord now{Block::Get().serial(),
                         Block::Get().barriers_passed(),
                         me.clock[me.lane],
                         static_cast<uint16_t>(me.linear),
                         bytes,
                         access.kind == AccessKind::kAtomic,
                         access.kind == AccessKind::kAsyncWrite,
                         access.pc};
  if (access.kind != AccessKind::kRead) {
    if (races_with(cell.read))
      ReportRace("write-after-read", cell.read, access);
    else if (races_with(cell.other_read))
      ReportRace("write-after-read", cell.other_read, access);
    cell.write = now;
    return;
  }
  const bool same_phase = cell.read.block == now.block && cell.read.barriers == now.barriers;
  if (same_phase && cell.read.thread / kWarpLanes != me.warp) cell.other_read = cell.read;
  cell.read = now;
}

void OnRead(const void* address, size_t bytes, const void* pc) {
  MemoryChecker::Get().Check(address, bytes, AccessKind::kRead, pc);
}
void OnWrite(const void* address, size_t bytes, const void* pc) {
  MemoryChecker::Get().Check(address, bytes, AccessKind::kWrite, pc);
}
void OnAtomic(const void* address, size_t bytes, const void* pc) {
  MemoryChecker::Get().Check(address, bytes, AccessKind::kAtomic, pc);
}
void OnAsyncWrite(const void* address, size_t bytes, const void* pc) {
  MemoryChecker::Get().Check(address, bytes, AccessKind::kAsyncWrite, pc);
}
void OnAsyncWritten(const void* address, size_t bytes, const void* pc) {
  MemoryChecker::Get().Check(address, bytes, AccessKind::kAsyncWritten, pc);
}
bool HasMemoryChecker() { return true; }
void OnDeviceFree(uintptr_t base) { MemoryChecker::Get().Forget(base); }

}  // namespace weir::emulator
