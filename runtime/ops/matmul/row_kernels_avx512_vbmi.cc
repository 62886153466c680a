// int8 rows for AVX-512 with BF16 and VBMI: 64 integers become bf16 by two look-ups of a byte each, a third
// of the work of converting them. Compiled with those flags; reached only where the CPU has them.
#include <array>

#include "runtime/ops/matmul/int8_bytes.h"
#include "runtime/ops/matmul/row_kernels_avx512.h"

namespace weir::matmul {
namespace {

alignas(64) constexpr std::array<uint8_t, 128> kHigh = BytesOfBf16<128>(24);
alignas(64) constexpr std::array<uint8_t, 128> kLow = BytesOfBf16<128>(16);

// q is below 2^7 in magnitude, so that a byte of each table answers for it.
inline __m512i LookUp(const std::array<uint8_t, 128>& table, __m512i magnitudes) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table.data()), magnitudes,
                                  _mm512_load_si512(table.data() + 64));
}

struct Avx512VbmiInt8 : Avx512Base {
  using Weight = __m512bh;
  using X = __m512bh;
  static constexpr int kWeightBytes = 2;
  static constexpr int kXStepBytes = 4;
  static X LoadX(const std::byte* p) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p)));
  }
  static Vec MulAdd(Vec acc, Weight w, X x) { return _mm512_dpbf16_ps(acc, w, x); }

  static void LoadPanel(const std::byte* p, Weight& a, Weight& b) {
    const __m512i q = _mm512_loadu_si512(p);
    const __m512i magnitude = _mm512_abs_epi8(q);
    const __m512i low = LookUp(kLow, magnitude);
    // high | (q & 0x80)
    const __m512i high = _mm512_ternarylogic_epi32(LookUp(kHigh, magnitude), q, _mm512_set1_epi8(-128), 0xF8);
    a = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(low, high));
    b = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(low, high));
  }
  static void StoreWide(std::byte* p, Weight w) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(w)); }
};

}  // namespace

constinit const RowsFunction* const kAvx512VbmiInt8Rows = kRowFunctions<Avx512VbmiInt8>;

}  // namespace weir::matmul
