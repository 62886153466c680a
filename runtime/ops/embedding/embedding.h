// Row look-ups: token embedding, and the choice of the rows whose logits are wanted.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct GatherRowsArgs {
  TensorView table;  // f32 or bf16 [rows, width]
  TensorView index;  // i32 [num_tokens], each in [0, rows)
  TensorView y;      // f32 [num_tokens, width]
};

void GatherRowsCpu(const GatherRowsArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void GatherRowsCuda(const GatherRowsArgs& args, Stream& stream);
void GatherRowsReference(const GatherRowsArgs& args, double* y);

inline constexpr Kernel<GatherRowsArgs> kGatherRows{"gather_rows", GatherRowsCpu, GatherRowsCuda};

}  // namespace weir
