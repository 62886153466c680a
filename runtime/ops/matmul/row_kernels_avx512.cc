// Row kernels for AVX-512 without BF16 instructions: bf16 weights are widened in registers. Compiled with
// those flags; reached only where the CPU has them.
#include "runtime/ops/matmul/row_kernels_avx512.h"

namespace weir::matmul {
namespace {

struct Avx512Widen : Avx512Base {
  using Uint16 = uint32_t __attribute__((vector_size(64)));
  struct Weight {
    Vec even, odd;
  };
  struct X {
    Vec even, odd;
  };
  static constexpr int kXStepBytes = 8;
  static constexpr int Wide(int rows) { return rows <= 4 ? 4 : 2; }  // the weights take two registers each
  static Weight LoadWeight(const std::byte* p) {
    const Uint16 pair = reinterpret_cast<Uint16>(_mm512_loadu_si512(p));
    return {reinterpret_cast<Vec>(pair << 16), reinterpret_cast<Vec>(pair & 0xffff0000u)};
  }
  static X LoadX(const std::byte* p) {
    const float* pair = reinterpret_cast<const float*>(p);
    return {_mm512_set1_ps(pair[0]), _mm512_set1_ps(pair[1])};
  }
  static Vec MulAdd(Vec acc, const Weight& w, const X& x) {
    return _mm512_fmadd_ps(w.odd, x.odd, _mm512_fmadd_ps(w.even, x.even, acc));
  }
};

struct Avx512WidenInt8 : Avx512Widen {
  static constexpr int kWeightBytes = 2;
  static Weight LoadWeight(const std::byte* p) {
    const __m512i pair = _mm512_cvtepi8_epi16(LoadInt8Pairs(p));
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16)),
            _mm512_cvtepi32_ps(_mm512_srai_epi32(pair, 16))};
  }
  static void StoreWide(std::byte* p, const Weight& w) {
    const Uint16 pair = reinterpret_cast<Uint16>(w.even) >> 16 | reinterpret_cast<Uint16>(w.odd);
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(pair));
  }
};

}  // namespace

constinit const IsaKernels kAvx512Kernels = {
    {Avx512F32::kMaxRows, Avx512F32::kXStepBytes, PackF32<kChunkSteps, false>, kRowFunctions<Avx512F32>},
    {Avx512Widen::kMaxRows, Avx512Widen::kXStepBytes, PackF32<2 * kChunkSteps, true>,
     kRowFunctions<Avx512Widen>},
    kRowFunctions<Avx512WidenInt8>,
    kRowFunctions<Avx512WidenInt8>};

}  // namespace weir::matmul
