// Row kernels for AVX2 with FMA. Compiled with those flags; reached only where the CPU has them.
#include <immintrin.h>

#include "runtime/ops/matmul/row_kernels_impl.h"

namespace weir::matmul {
namespace {

struct Avx2Base {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kWeightBytes = 4;
  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
};

struct Avx2F32 : Avx2Base {
  using Weight = Vec;
  using X = Vec;
  static constexpr int kXStepBytes = 4;
  static constexpr int kMaxRows = 6;  // 6 x 2 sums, 2 weights, 1 activation of 16 registers
  static constexpr int Wide(int rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
  static constexpr int Narrow(int rows) { return rows <= 3 ? 4 : 2; }
  static Weight LoadWeight(const std::byte* p) { return Load(reinterpret_cast<const float*>(p)); }
  static X LoadX(const std::byte* p) { return _mm256_broadcast_ss(reinterpret_cast<const float*>(p)); }
  static Vec MulAdd(Vec acc, Weight w, X x) { return _mm256_fmadd_ps(w, x, acc); }
};

struct Avx2BF16 : Avx2Base {
  struct Weight {
    Vec even, odd;
  };
  struct X {
    Vec even, odd;
  };
  static constexpr int kXStepBytes = 8;
  static constexpr int kMaxRows = 4;  // 4 x 2 sums, 4 weights, 2 activations
  static constexpr int Wide(int rows) { return rows <= 2 ? 4 : 2; }
  static constexpr int Narrow(int rows) { return rows <= 2 ? 4 : 2; }
  static Weight LoadWeight(const std::byte* p) {
    const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  static X LoadX(const std::byte* p) {
    const float* pair = reinterpret_cast<const float*>(p);
    return {_mm256_broadcast_ss(pair), _mm256_broadcast_ss(pair + 1)};
  }
  static Vec MulAdd(Vec acc, const Weight& w, const X& x) {
    return _mm256_fmadd_ps(w.odd, x.odd, _mm256_fmadd_ps(w.even, x.even, acc));
  }
};

struct Avx2Int8 : Avx2BF16 {
  static constexpr int kWeightBytes = 2;
  static Weight LoadWeight(const std::byte* p) {
    const auto four = [](const std::byte* at) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    };
    const __m256i pair = _mm256_cvtepi8_epi16(_mm_unpacklo_epi64(four(p), four(p + Int8PairAt(4))));
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pair, 16), 16)),
            _mm256_cvtepi32_ps(_mm256_srai_epi32(pair, 16))};
  }
  static void StoreWide(std::byte* p, const Weight& w) {
    const __m256i even = _mm256_srli_epi32(_mm256_castps_si256(w.even), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_or_si256(even, _mm256_castps_si256(w.odd)));
  }
};

constexpr RowsFunction kF32Rows[] = {Rows<Avx2F32, 1>, Rows<Avx2F32, 2>, Rows<Avx2F32, 3>,
                                     Rows<Avx2F32, 4>, Rows<Avx2F32, 5>, Rows<Avx2F32, 6>};
constexpr RowsFunction kBF16Rows[] = {Rows<Avx2BF16, 1>, Rows<Avx2BF16, 2>, Rows<Avx2BF16, 3>,
                                      Rows<Avx2BF16, 4>};
constexpr RowsFunction kInt8Rows[] = {Rows<Avx2Int8, 1>, Rows<Avx2Int8, 2>, Rows<Avx2Int8, 3>,
                                      Rows<Avx2Int8, 4>};
static_assert(sizeof(kF32Rows) / sizeof(kF32Rows[0]) == Avx2F32::kMaxRows);
static_assert(sizeof(kBF16Rows) / sizeof(kBF16Rows[0]) == Avx2BF16::kMaxRows);
static_assert(sizeof(kInt8Rows) == sizeof(kBF16Rows));

}  // namespace

constinit const IsaKernels kAvx2Kernels = {
    {Avx2F32::kMaxRows, Avx2F32::kXStepBytes, PackF32<kChunkSteps, false>, kF32Rows},
    {Avx2BF16::kMaxRows, Avx2BF16::kXStepBytes, PackF32<2 * kChunkSteps, true>, kBF16Rows},
    kInt8Rows,
    kInt8Rows};

}  // namespace weir::matmul
