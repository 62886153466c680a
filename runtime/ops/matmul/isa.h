// The instruction sets that matmul has kernels for. The best one that CPU and operating system support is
// chosen at the first use; all read the same packed weights.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/ops/matmul/row_kernels.h"

namespace weir {

enum class MatmulIsa : uint8_t { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAvx512Vbmi, kAmx };

inline constexpr std::array kAllMatmulIsas = {MatmulIsa::kGeneric,    MatmulIsa::kAvx2,
                                              MatmulIsa::kAvx512,     MatmulIsa::kAvx512Bf16,
                                              MatmulIsa::kAvx512Vbmi, MatmulIsa::kAmx};

std::string_view MatmulIsaName(MatmulIsa isa);  // "avx512_vbmi", for logs
bool MatmulIsaSupported(MatmulIsa isa);
MatmulIsa CurrentMatmulIsa();
// Forces one that is supported; nullopt goes back to the best. Not during a matmul.
void SetMatmulIsaForTest(std::optional<MatmulIsa> isa);

namespace matmul {
const IsaKernels& CurrentKernels();
}  // namespace matmul

}  // namespace weir
