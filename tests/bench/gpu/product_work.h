// Products that are measured: y = x Wᵀ for `matrices` different W in turn, so that small ones do not stay in
// the L2 cache.
#pragma once

#include "tests/bench/gpu/cublaslt.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace weir::bench {

// x f32 [m, k], rounded to bf16 by the kernel; W bf16 [n, k].
GpuBench::Work OwnProductWork(GpuBench& bench, DeviceArrays& arrays, int64_t m, int64_t n, int64_t k,
                              int matrices);
// x bf16 already. `library` outlives the work.
GpuBench::Work CublasLtWork(GpuBench& bench, const CublasLt& library, DeviceArrays& arrays, int64_t m,
                            int64_t n, int64_t k, int matrices);

}  // namespace weir::bench
