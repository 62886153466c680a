// The shared memory of the block that runs: an arena with guard zones between its pieces.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weir::emulator {

// Bytes that a block can have at most, once the kernel's attribute allows it.
size_t SharedMemoryLimit();
inline constexpr size_t kStaticSharedLimit = 48 << 10;

class SharedMemory {
 public:
  static SharedMemory& Get();

  void BeginGrid(size_t dynamic_bytes);
  // Fresh: filled with NaN.
  void BeginBlock();
  // What is not the block's must be as it was.
  void CheckGuards();

  void* Dynamic();
  void* Static(const void* tag, size_t bytes, size_t alignment);

  bool Contains(const void* address) const { return address >= arena_ && address < arena_ + kArenaBytes; }
  size_t Offset(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - arena_);
  }
  // Inside one piece.
  bool IsAllocated(size_t offset, size_t bytes) const;
  // " (N bytes past the end of a piece of M bytes)", or empty.
  std::string DescribeOutside(size_t offset) const;

  static constexpr size_t kArenaBytes = 512 << 10;

 private:
  struct Piece {
    const void* tag;  // null: dynamic
    size_t offset, bytes;
  };

  SharedMemory();
  void* Add(const void* tag, size_t bytes, size_t alignment);
  void Fill(const Piece& piece);
  size_t CheckGuard(size_t first, size_t last);

  char* const arena_;
  std::vector<Piece> pieces_;  // by offset
  size_t end_ = 0;             // of the last piece
  size_t static_bytes_ = 0, dynamic_bytes_ = 0;
};

}  // namespace weir::emulator
