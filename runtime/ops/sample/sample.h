// One token, or one log-probability, from each of some rows of logits, where they lie: what goes back to the
// host is a few bytes a row. A row's result depends on nothing but that row and its parameters.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/sample/row_params.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// The order is that of Sampler: suppressed ids, temperature, top_k, top_p, min_p, each of which keeps at
// least the arg-max; what is left is drawn from in the order of ids. Sums are in other orders than Sampler's,
// so a draw within rounding (some 1e-7) of the border between two ids may give the other one.
struct SampleRowsArgs {
  TensorView logits;  // f32 [num_rows, vocab_size]; suppressed ids become -inf
  int num_ids = 0;    // ids from here on are padding and never drawn
  // i32 [num_samples, sizeof(RowParams) / 4], dense: RowParams, 8-byte aligned; no row of the logits twice.
  TensorView params;
  TensorView samples;  // i32 [num_samples, sizeof(RowSample) / 4], dense: RowSample
};

WEIR_CUDA_COLUMN void SampleRowsCuda(const SampleRowsArgs& args, Stream& stream);

// No CPU column: there the logits are the host's already, and Sampler (runtime/engine) reads them.
inline constexpr Kernel<SampleRowsArgs> kSampleRows{"sample_rows", nullptr, SampleRowsCuda};

}  // namespace weir
