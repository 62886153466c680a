// What this machine allows, measured in the run that is held against it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/device/device.h"
#include "runtime/tensor/dtype.h"

namespace weir::bench {

using Clock = std::chrono::steady_clock;

inline double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The value that a share `q` of the values does not exceed. Reorders *values, which is not empty.
inline double Quantile(std::vector<double>* values, double q) {
  const auto at = static_cast<int64_t>(q * static_cast<double>(values->size() - 1) + 0.5);
  std::nth_element(values->begin(), values->begin() + at, values->end());
  return (*values)[static_cast<size_t>(at)];
}

// Seconds of one call: the best of several.
using Timer = std::function<double(FunctionRef<void()> call)>;
double BestOfFive(FunctionRef<void()> call);  // wall time

// Bytes a second that all workers read together, in passes over 1 GiB.
double ReadBandwidth(Device& device, const Timer& best = BestOfFive);

// Operations a second of a 2048 x 2048 x 2048 product with bf16 weights: Weir's own, best of 5.
double MatmulPeak(Device& device);
#if defined(WEIR_HAVE_DNNL)
inline constexpr bool kHasDnnl = true;
#else
inline constexpr bool kHasDnnl = false;
#endif
// Seconds of an [m, k] x [k, n] product by oneDNN, inputs f32 or bf16 already, output f32, the primitive made
// for the exact m; 0 where the build has no oneDNN.
double DnnlSeconds(DType dtype, int64_t m, int64_t k, int64_t n, int threads, const Timer& best);
// Operations a second of the 2048 x 2048 x 2048 product with bf16 inputs by oneDNN; 0 without it. Aims are
// stated for a machine where this gives 1.5e12.
double DnnlPeak(int threads);
// Operations a second with operands in registers, all workers: bf16 dot products (AVX512-BF16) or f32 fused
// multiply-adds (AVX-512); 0 where the processor has none.
double RegisterPeak(Device& device, DType dtype = DType::kBF16, const Timer& best = BestOfFive);

}  // namespace weir::bench
