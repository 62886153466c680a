// Tables that turn small integers into bf16, a byte each. Included by files compiled for different
// instruction sets: only constants here.
#pragma once

#include <array>
#include <cstdint>

namespace weir::matmul {
namespace {

// Of the bf16 of 0, 1, 2, …: with shift 24 the byte of 7 bits of the exponent, which has the sign's place
// too; with 16 that of the exponent's last bit and the fraction.
template <int kCount>
constexpr std::array<uint8_t, kCount> BytesOfBf16(int shift) {
  std::array<uint8_t, kCount> bytes{};
  for (int q = 0; q < kCount; ++q)
    bytes[q] = static_cast<uint8_t>(__builtin_bit_cast(uint32_t, static_cast<float>(q)) >> shift);
  return bytes;
}

}  // namespace
}  // namespace weir::matmul
