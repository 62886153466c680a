// int8 rows for AVX-512 with BF16 and VBMI. Compiled with those flags; reached only where the CPU has them.
#include "runtime/ops/matmul/row_kernels_avx512.h"
#include "runtime/ops/matmul/widen_avx512_vbmi.h"

namespace weir::matmul {
namespace {

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
    const WidePanelStep wide = WidenPanelStep<false>(_mm512_loadu_si512(p));
    a = reinterpret_cast<__m512bh>(wide.low);
    b = reinterpret_cast<__m512bh>(wide.high);
  }
  static void StoreWide(std::byte* p, Weight w) { _mm512_storeu_si512(p, reinterpret_cast<__m512i>(w)); }
};

}  // namespace

constinit const RowsFunction* const kAvx512VbmiInt8Rows = kRowFunctions<Avx512VbmiInt8>;

}  // namespace weir::matmul
