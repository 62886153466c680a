// Row kernels for AVX-512 with BF16 instructions: vdpbf16ps adds the products of a pair to an f32 sum.
// Compiled with those flags; reached only where the CPU has them.
#include "runtime/ops/matmul/row_kernels_avx512.h"

namespace weir::matmul {
namespace {

struct Avx512Dot : Avx512Base {
  using Weight = __m512bh;
  using X = __m512bh;
  static constexpr int kXStepBytes = 4;
  static Weight LoadWeight(const std::byte* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }
  static X LoadX(const std::byte* p) {
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p)));
  }
  static Vec MulAdd(Vec acc, Weight w, X x) { return _mm512_dpbf16_ps(acc, w, x); }
};

struct Avx512DotInt8 : Avx512Dot {
  static constexpr int kWeightBytes = 2;
  // int8 to f32 for 8 outputs' pairs at a time, and both to bf16 together.
  static Weight LoadWeight(const std::byte* p) {
    const __m256i pairs = LoadInt8Pairs(p);
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(pairs)));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(pairs, 1)));
    return _mm512_cvtne2ps_pbh(high, low);
  }
  static void StoreWide(std::byte* p, Weight w) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(w)); }
};

void PackBF16(const float* x, int64_t x_stride, int64_t rows, int64_t k, std::byte* packed) {
  constexpr int64_t kValues = 2 * kChunkSteps;
  for (int64_t begin = 0; begin < k; begin += kValues) {
    const int64_t count = k - begin < kValues ? k - begin : kValues;
    const uint32_t mask = static_cast<uint32_t>((uint64_t{1} << count) - 1);
    for (int64_t r = 0; r < rows; ++r, packed += 64) {
      const float* in = x + r * x_stride + begin;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), in);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), in + 16);
      _mm512_store_si512(packed, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
  }
}

}  // namespace

constinit const IsaKernels kAvx512Bf16Kernels = {
    {Avx512F32::kMaxRows, Avx512F32::kXStepBytes, PackF32<kChunkSteps, false>, kRowFunctions<Avx512F32>},
    {Avx512Dot::kMaxRows, Avx512Dot::kXStepBytes, PackBF16, kRowFunctions<Avx512Dot>},
    kRowFunctions<Avx512DotInt8>,
    kRowFunctions<Avx512DotInt8>};

}  // namespace weir::matmul
