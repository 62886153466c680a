// What this machine allows, measured in the run that is held against it.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/device/device.h"

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

// Bytes a second that all workers read together: best of 5 passes over 1 GiB.
double ReadBandwidth(Device& device);

// Operations a second of a 2048 x 2048 x 2048 product with bf16 weights: Weir's own, best of 5.
double MatmulPeak(Device& device);
// The same product by oneDNN with as many threads, activations in bf16 already; 0 where the build has no
// oneDNN. Aims are stated for a machine where this gives 1.5e12.
double DnnlPeak(int threads);
// Operations a second of bf16 dot products (AVX512-BF16) with operands in registers, all workers; 0 where
// the processor has none.
double RegisterPeak(Device& device);

}  // namespace weir::bench
