// ContentHash: a fast 64-bit hash for telling contents apart. Not cryptographic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weir {

// Each step is a bijection of its lane for a fixed input word and of the word for a fixed lane, so two inputs
// of equal length that differ in one aligned 8-byte word never have the same hash. One thread.
class ContentHash {
 public:
  // The result depends on the bytes and not on how they are cut into calls.
  void Update(std::span<const std::byte> bytes);
  uint64_t Finish();  // call once, last

 private:
  static constexpr size_t kBlockBytes = 32;
  void MixBlock(const std::byte* block);

  // Fractional parts of the square roots of 2, 3, 5 and 7.
  std::array<uint64_t, 4> lanes_ = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                    0xa54ff53a5f1d36f1};
  std::array<std::byte, kBlockBytes> pending_{};
  size_t num_pending_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace weir
