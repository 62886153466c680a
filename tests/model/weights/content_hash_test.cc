#include "model/weights/content_hash.h"

#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

uint64_t HashInPieces(const std::vector<std::byte>& bytes, const std::vector<size_t>& cuts) {
  ContentHash hash;
  size_t begin = 0;
  for (size_t cut : cuts) {
    hash.Update(std::span(bytes).subspan(begin, cut - begin));
    begin = cut;
  }
  hash.Update(std::span(bytes).subspan(begin));
  return hash.Finish();
}

std::vector<std::byte> RandomBytes(size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(ContentHash, DoesNotDependOnHowTheBytesAreCut) {
  const std::vector<std::byte> bytes = RandomBytes(101);
  const uint64_t whole = HashInPieces(bytes, {});
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(HashInPieces(bytes, {cut}), whole) << cut;
    EXPECT_EQ(HashInPieces(bytes, {cut / 3, cut / 2, cut}), whole) << cut;
  }
}

// Any two of the flipped inputs differ in two bits, often in two words of one lane.
TEST(ContentHash, EveryBitCounts) {
  std::vector<std::byte> bytes = RandomBytes(200);
  std::set<uint64_t> seen = {HashInPieces(bytes, {})};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const std::byte mask{static_cast<unsigned char>(1u << (bit % 8))};
    bytes[bit / 8] ^= mask;
    EXPECT_TRUE(seen.insert(HashInPieces(bytes, {})).second) << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(ContentHash, LengthCountsEvenForZeros) {
  std::set<uint64_t> seen;
  for (size_t size = 0; size < 200; ++size) {
    EXPECT_TRUE(seen.insert(HashInPieces(std::vector<std::byte>(size), {})).second) << size;
  }
}

}  // namespace
}  // namespace weir
