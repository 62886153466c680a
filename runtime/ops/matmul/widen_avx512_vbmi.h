// int8 to bf16 with AVX-512 and VBMI: 64 integers by two look-ups of a byte each, a third of the work of
// converting them.
#pragma once

#include <immintrin.h>

#include <array>

#include "runtime/ops/matmul/row_kernels.h"

namespace weir::matmul {
namespace {

// Bits of q as bf16, 0 <= q < 64: 7 of the exponent in one byte; the exponent's last bit and the fraction in
// the other.
constexpr std::array<uint8_t, 64> BytesOfBf16(int shift) {
  std::array<uint8_t, 64> bytes{};
  for (int q = 0; q < 64; ++q)
    bytes[q] = static_cast<uint8_t>(__builtin_bit_cast(uint32_t, static_cast<float>(q)) >> shift);
  return bytes;
}
alignas(64) constexpr std::array<uint8_t, 64> kHigh = BytesOfBf16(24);
alignas(64) constexpr std::array<uint8_t, 64> kLow = BytesOfBf16(16);

// A step of a panel of bf16: its lower and its upper 16 outputs.
struct WidePanelStep {
  __m512i low, high;
};

// `q`: a step of a panel of int8, from -127 to 127 unless kMinus128.
template <bool kMinus128>
inline WidePanelStep WidenPanelStep(__m512i q) {
  const __m512i magnitude = _mm512_abs_epi8(q);
  // From 64 on the high byte is that of 63, and the low one is the number twice: 1 and its last six bits.
  const __m512i twice = _mm512_add_epi8(magnitude, magnitude);
  const __m512i low = _mm512_mask_mov_epi8(_mm512_permutexvar_epi8(magnitude, _mm512_load_si512(kLow.data())),
                                           _mm512_movepi8_mask(twice), twice);
  const __m512i below_64 = _mm512_min_epu8(magnitude, _mm512_set1_epi8(63));
  // high | (q & 0x80)
  __m512i high = _mm512_ternarylogic_epi32(_mm512_permutexvar_epi8(below_64, _mm512_load_si512(kHigh.data())),
                                           q, _mm512_set1_epi8(-128), 0xF8);
  if constexpr (kMinus128) {  // its low byte is 0 already; as bf16 it is 0xC300
    const __mmask64 lowest = _mm512_cmpeq_epi8_mask(q, _mm512_set1_epi8(-128));
    high = _mm512_mask_mov_epi8(high, lowest, _mm512_set1_epi8(static_cast<char>(0xC3)));
  }
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
}

}  // namespace
}  // namespace weir::matmul
