// Products that are measured: y = x Wᵀ for `matrices` different W in turn, so that small ones do not stay in
// the L2 cache.
#pragma once

#include "runtime/device/cublas_lt.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace weir::bench {

struct ProductSize {
  int64_t m, n, k;
  int matrices = 1;
  DType weights = DType::kBF16;  // or kI8, of kServed only
};

// x f32 [m, k], rounded to bf16; W bf16 or int8 [n, k]. kServed: as a model multiplies, bf16 through cuBLASLt
// where that was found and keeps the batch law. kOwn: by the project's own kernels.
enum class ProductWay : uint8_t { kServed, kOwn };
GpuBench::Work ProductWork(GpuBench& bench, DeviceArrays& arrays, const ProductSize& size, ProductWay way);
// x bf16 already.
GpuBench::Work FastestProductWork(GpuBench& bench, const CublasLt& lt, DeviceArrays& arrays,
                                  const ProductSize& size);

}  // namespace weir::bench
