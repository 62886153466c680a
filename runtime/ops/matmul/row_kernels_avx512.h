// The AVX-512 policies that need no BF16 instructions.
#pragma once

#include <immintrin.h>

#include "runtime/ops/matmul/row_kernels_impl.h"

namespace weir::matmul {
namespace {

struct Avx512Base {
  using Vec = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kWeightBytes = 4;
  // 8 x 2 sums hide the latency. More rows would not be faster: their activations no longer fit the L1 cache.
  static constexpr int kMaxRows = 8;
  static constexpr int Wide(int rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }
  static constexpr int Narrow(int) { return 2; }
  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
};

// The pairs of 16 outputs in order: every second eight bytes.
inline __m256i LoadInt8Pairs(const std::byte* p) {
  const __m512i spread = _mm512_maskz_loadu_epi64(0x55, p);
  return _mm512_castsi512_si256(_mm512_maskz_compress_epi64(0x55, spread));
}

struct Avx512F32 : Avx512Base {
  using Weight = Vec;
  using X = Vec;
  static constexpr int kXStepBytes = 4;
  static Weight LoadWeight(const std::byte* p) { return _mm512_loadu_ps(p); }
  static X LoadX(const std::byte* p) { return _mm512_set1_ps(*reinterpret_cast<const float*>(p)); }
  static Vec MulAdd(Vec acc, Weight w, X x) { return _mm512_fmadd_ps(w, x, acc); }
};

template <class I>
inline constexpr RowsFunction kRowFunctions[] = {Rows<I, 1>, Rows<I, 2>, Rows<I, 3>, Rows<I, 4>,
                                                 Rows<I, 5>, Rows<I, 6>, Rows<I, 7>, Rows<I, 8>};
static_assert(sizeof(kRowFunctions<Avx512F32>) / sizeof(RowsFunction) == Avx512Base::kMaxRows);

}  // namespace
}  // namespace weir::matmul
