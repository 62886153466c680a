#include "model/weights/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weir {
namespace {

// 2^64 / golden ratio, odd: multiplying by it permutes the 64-bit words.
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;

// The shift brings a word's upper bits (signs and exponents) under the multiplication; without it a flip of
// bit 63 stays a single bit and can cancel against one in the lane's next word.
uint64_t Step(uint64_t lane, uint64_t word) {
  const uint64_t mixed = lane ^ word;
  return std::rotl((mixed ^ (mixed >> 32)) * kMultiplier, 29);
}

uint64_t Spread(uint64_t value) {
  value = (value ^ (value >> 32)) * kMultiplier;
  return value ^ (value >> 29);
}

}  // namespace

void ContentHash::MixBlock(const std::byte* block) {
  std::array<uint64_t, 4> words;
  std::memcpy(words.data(), block, kBlockBytes);
  for (size_t i = 0; i < 4; ++i) lanes_[i] = Step(lanes_[i], words[i]);
}

void ContentHash::Update(std::span<const std::byte> bytes) {
  num_bytes_ += bytes.size();
  if (num_pending_ > 0) {
    const size_t take = std::min(bytes.size(), kBlockBytes - num_pending_);
    std::copy_n(bytes.begin(), take, pending_.begin() + num_pending_);
    num_pending_ += take;
    bytes = bytes.subspan(take);
    if (num_pending_ < kBlockBytes) return;
    MixBlock(pending_.data());
  }
  while (bytes.size() >= kBlockBytes) {
    MixBlock(bytes.data());
    bytes = bytes.subspan(kBlockBytes);
  }
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
  num_pending_ = bytes.size();
}

uint64_t ContentHash::Finish() {
  std::fill(pending_.begin() + num_pending_, pending_.end(), std::byte{0});
  MixBlock(pending_.data());
  uint64_t hash = num_bytes_;  // so that trailing zeros count
  for (uint64_t lane : lanes_) hash = Spread(Step(hash, Spread(lane)));
  return hash;
}

}  // namespace weir
