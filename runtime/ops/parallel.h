// How the CPU kernels share rows among the workers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/function_ref.h"
#include "runtime/device/worker_pool.h"

namespace weir {

// Element operations that pay for handing work to a worker: 1 to 5 µs of vector arithmetic.
inline constexpr int64_t kParallelGrain = 20000;

// Runs body(begin, end) over pieces of [0, count). A piece costs at least kParallelGrain element operations,
// so that a small job stays on the caller; where the pieces lie must not matter to the result.
inline void ParallelRows(WorkerPool& pool, int64_t count, int64_t cost_per_row,
                         FunctionRef<void(int64_t begin, int64_t end)> body) {
  if (count <= 0) return;
  const int64_t grain = std::max<int64_t>(1, kParallelGrain / std::max<int64_t>(1, cost_per_row));
  // More pieces than threads, so that a late thread delays the others little.
  const int64_t rows = std::max(grain, (count + pool.num_threads() * 4 - 1) / (pool.num_threads() * 4));
  pool.ParallelFor((count + rows - 1) / rows,
                   [&](int64_t piece, int) { body(piece * rows, std::min(count, (piece + 1) * rows)); });
}

}  // namespace weir
