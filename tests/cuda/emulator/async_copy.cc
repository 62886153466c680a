// cp.async. The hardware may move the bytes at any time between the instruction and the wait for it: moving
// them late shows a missing wait, moving them at once shows a missing barrier before a buffer is used again.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/cuda/emulator/block.h"
#include "tests/cuda/emulator/reports.h"

namespace weir::emulator {
namespace {

constexpr size_t kCopyBytes = 16;

CopyWaits copy_waits;  // one thread at a time runs device code

bool MovesAtOnce() {
  const Schedule schedule = Options().schedule;
  if (schedule == Schedule::kRandom) return (Block::Get().random()() & 1) != 0;
  return schedule == Schedule::kGreedyLastWarp;
}

void Move(const AsyncCopy& copy) {
  if (copy.src == nullptr)
    std::memset(copy.dst, 0, kCopyBytes);
  else
    std::memcpy(copy.dst, copy.src, kCopyBytes);
}

}  // namespace

void AsyncCopy16(void* dst, const void* src, bool valid) {
  const void* const pc = __builtin_return_address(0);
  const uintptr_t bits = reinterpret_cast<uintptr_t>(dst) | (valid ? reinterpret_cast<uintptr_t>(src) : 0);
  if (bits % kCopyBytes != 0)
    Fail(ReportKind::kMisaligned,
         "cp.async of 16 bytes needs addresses that are multiples of 16 (to {}, from {})",
         static_cast<const void*>(dst), src);
  const AsyncCopy copy{dst, valid ? src : nullptr, MovesAtOnce()};
  if (copy.src != nullptr) OnRead(copy.src, kCopyBytes, pc);
  OnAsyncWrite(dst, kCopyBytes, pc);
  if (copy.early) Move(copy);
  current_thread->open_copies.push_back(copy);
}

void AsyncCommit() {
  DeviceThread& me = *current_thread;
  me.committed_copies.push_back(std::move(me.open_copies));
  me.open_copies.clear();
}

void AsyncWait(int pending) {
  const void* const pc = __builtin_return_address(0);
  DeviceThread& me = *current_thread;
  const auto any = [&me] {
    return std::any_of(me.committed_copies.begin(), me.committed_copies.end(),
                       [](const auto& group) { return !group.empty(); });
  };
  const bool had_any = any();
  while (me.committed_copies.size() > static_cast<size_t>(pending)) {
    for (const AsyncCopy& copy : me.committed_copies.front()) {
      OnAsyncWritten(copy.dst, kCopyBytes, pc);
      if (!copy.early) Move(copy);
    }
    me.committed_copies.pop_front();
  }
  copy_waits.all += had_any ? 1 : 0;
  copy_waits.overlapped += any() ? 1 : 0;
}

CopyWaits CopyWaitsSoFar() { return copy_waits; }

void CheckMatrixRow(const void* row, Site site) {
  if (reinterpret_cast<uintptr_t>(row) % kCopyBytes != 0)
    Fail(ReportKind::kMisaligned, "{}: ldmatrix needs rows at multiples of 16 bytes, not {}", site, row);
  OnRead(row, kCopyBytes, __builtin_return_address(0));
}

}  // namespace weir::emulator
