#include "runtime/ops/matmul/isa.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>

#include "runtime/base/check.h"

namespace weir {
namespace {

MatmulIsa BestIsa() {
  MatmulIsa best = MatmulIsa::kGeneric;
  for (MatmulIsa isa : kAllMatmulIsas)
    if (MatmulIsaSupported(isa)) best = isa;
  return best;
}

// Linux gives a process the tiles' registers only when it asks, once for all of its threads.
bool TilesAllowed() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

std::atomic<MatmulIsa>& Current() {
  static std::atomic<MatmulIsa> current{BestIsa()};
  return current;
}

}  // namespace

std::string_view MatmulIsaName(MatmulIsa isa) {
  switch (isa) {
    case MatmulIsa::kGeneric:
      return "generic";
    case MatmulIsa::kAvx2:
      return "avx2";
    case MatmulIsa::kAvx512:
      return "avx512";
    case MatmulIsa::kAvx512Bf16:
      return "avx512_bf16";
    case MatmulIsa::kAvx512Vbmi:
      return "avx512_vbmi";
    case MatmulIsa::kAmx:
      return "amx";
  }
  return "?";
}

// The compiler's run-time library also asks the operating system whether it keeps the wide registers.
bool MatmulIsaSupported(MatmulIsa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool vbmi = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  switch (isa) {
    case MatmulIsa::kGeneric:
      return true;
    case MatmulIsa::kAvx2:
      return avx2;
    case MatmulIsa::kAvx512:
      return avx512;
    case MatmulIsa::kAvx512Bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
    case MatmulIsa::kAvx512Vbmi:
      return vbmi;
    case MatmulIsa::kAmx:
      return vbmi && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
             TilesAllowed();
  }
  return false;
#else
  return isa == MatmulIsa::kGeneric;
#endif
}

MatmulIsa CurrentMatmulIsa() { return Current().load(std::memory_order_relaxed); }

void SetMatmulIsaForTest(std::optional<MatmulIsa> isa) {
  WEIR_CHECK(!isa.has_value() || MatmulIsaSupported(*isa));
  Current().store(isa.value_or(BestIsa()), std::memory_order_relaxed);
}

namespace matmul {

const IsaKernels& CurrentKernels() {
#if defined(__x86_64__)
  switch (CurrentMatmulIsa()) {
    case MatmulIsa::kGeneric:
      return kGenericKernels;
    case MatmulIsa::kAvx2:
      return kAvx2Kernels;
    case MatmulIsa::kAvx512:
      return kAvx512Kernels;
    case MatmulIsa::kAvx512Bf16:
      return kAvx512Bf16Kernels;
    case MatmulIsa::kAvx512Vbmi: {
      static const IsaKernels kernels = {kAvx512Bf16Kernels.f32, kAvx512Bf16Kernels.bf16, kAvx512VbmiInt8Rows,
                                         kAvx512Bf16Kernels.full_int8_rows};
      return kernels;
    }
    case MatmulIsa::kAmx: {
      const RowKernels& bf16 = kAvx512Bf16Kernels.bf16;
      static const IsaKernels kernels = {
          kAvx512Bf16Kernels.f32,
          {kAmxKernels.max_rows, bf16.x_step_bytes, bf16.pack_x, kAmxKernels.bf16_rows},
          kAmxKernels.int8_rows,
          kAmxKernels.full_int8_rows};
      return kernels;
    }
  }
#endif
  return kGenericKernels;
}

}  // namespace matmul
}  // namespace weir
