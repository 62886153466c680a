#include "tests/cuda/emulator/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/emulator/device_interface.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/sanitizer.h"

namespace weir::emulator {
namespace {

constexpr size_t kZoneBytes = 256;
constexpr size_t kCheckedBytes = 4096;  // behind the last piece
constexpr unsigned char kGuard = 0xc5;

}  // namespace

size_t SharedMemoryLimit() {
  switch (Options().compute_capability) {
    case 80:
    case 87:
      return 163 << 10;
    case 86:
    case 89:
    case 120:
      return 99 << 10;
    default:
      return 227 << 10;
  }
}

SharedMemory& SharedMemory::Get() {
  static SharedMemory* const memory = new SharedMemory;
  return *memory;
}

SharedMemory::SharedMemory()
    : arena_(static_cast<char*>(
          mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}

void SharedMemory::BeginGrid(size_t dynamic_bytes) {
  Unpoison(arena_, kArenaBytes);
  std::memset(arena_, kGuard, kArenaBytes);
  Poison(arena_, kArenaBytes);
  pieces_.clear();
  end_ = 0;
  static_bytes_ = 0;
  dynamic_bytes_ = dynamic_bytes;
  if (dynamic_bytes > 0) Add(nullptr, dynamic_bytes, 128);
}

void SharedMemory::BeginBlock() {
  for (const Piece& piece : pieces_) Fill(piece);
}

void SharedMemory::Fill(const Piece& piece) {
  Unpoison(arena_ + piece.offset, piece.bytes);
  std::memset(arena_ + piece.offset, 0xff, piece.bytes);
}

void* SharedMemory::Add(const void* tag, size_t bytes, size_t alignment) {
  const size_t offset = (end_ + kZoneBytes + alignment - 1) / alignment * alignment;
  pieces_.push_back({tag, offset, bytes});
  end_ = offset + bytes;  // the arena is twice what the limits allow
  Fill(pieces_.back());
  return arena_ + offset;
}

void* SharedMemory::Dynamic() {
  if (dynamic_bytes_ == 0)
    Fail(ReportKind::kLaunch, "the kernel uses dynamic shared memory but was launched with 0 bytes of it");
  return arena_ + pieces_.front().offset;
}

void* SharedMemory::Static(const void* tag, size_t bytes, size_t alignment) {
  for (const Piece& piece : pieces_)
    if (piece.tag == tag) return arena_ + piece.offset;
  static_bytes_ += bytes;
  if (static_bytes_ > kStaticSharedLimit)
    Fail(ReportKind::kLaunch, "{} bytes of static shared memory; the limit is {}", static_bytes_,
         +kStaticSharedLimit);
  if (static_bytes_ + dynamic_bytes_ > SharedMemoryLimit())
    Fail(ReportKind::kLaunch, "{} bytes of static and {} of dynamic shared memory; the limit is {}",
         static_bytes_, dynamic_bytes_, SharedMemoryLimit());
  return Add(tag, bytes, alignment);
}

bool SharedMemory::IsAllocated(size_t offset, size_t bytes) const {
  for (const Piece& piece : pieces_)
    if (offset >= piece.offset && offset + bytes <= piece.offset + piece.bytes) return true;
  return false;
}

std::string SharedMemory::DescribeOutside(size_t offset) const {
  for (const Piece& piece : pieces_) {
    const size_t end = piece.offset + piece.bytes;
    if (offset >= end && offset < end + kZoneBytes)
      return fmt::format(" ({} bytes past the end of a piece of {} bytes)", offset - end, piece.bytes);
  }
  return "";
}

// The first byte in [first, last) that was overwritten, or last.
size_t SharedMemory::CheckGuard(size_t first, size_t last) {
  for (size_t i = first; i < last; ++i)
    if (static_cast<unsigned char>(arena_[i]) != kGuard) return i;
  return last;
}

void SharedMemory::CheckGuards() {
  if constexpr (kAddressSanitizer) return;  // the zones are poisoned, so the write itself was reported
  size_t first = 0;
  for (size_t i = 0; i <= pieces_.size(); ++i) {
    const size_t last = i < pieces_.size() ? pieces_[i].offset : std::min(kArenaBytes, first + kCheckedBytes);
    const size_t at = CheckGuard(first, last);
    if (at != last) {
      Note(ReportKind::kSharedBounds, "a kernel wrote outside its shared memory{}", DescribeOutside(at));
      SetStickyError(StickyErrorOf(ReportKind::kSharedBounds));
      return;
    }
    if (i < pieces_.size()) first = pieces_[i].offset + pieces_[i].bytes;
  }
}

void* DynamicSharedBytes() { return SharedMemory::Get().Dynamic(); }
void* StaticSharedBytes(const void* tag, size_t bytes, size_t alignment) {
  return SharedMemory::Get().Static(tag, bytes, alignment);
}

}  // namespace weir::emulator
