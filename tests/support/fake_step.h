// The one operation of FakeModel, as a kernel table's entry: what it computes of a step, on any device.
#pragma once

#include <cstdint>

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir::testing {

struct FakeStepArgs {
  RaggedBatch batch;
  TensorView token_ids;   // i32 [num_tokens]
  TensorView logit_rows;  // i32 [num_logits]
  TensorView words;       // f32 [slots, 2]: hash of the tokens so far, and their number
  TensorView keys;        // f32 [blocks, 1, 2, kKvBlockTokens], or empty: each token's id and position
  TensorView logits;      // f32 [num_logits, vocab_size]
  int32_t poison_id = -1;
};

// A token of another position than the state's, or a key that is not the one written, ends the process on the
// CPU; on a GPU the logits are then NaN.
void FakeStepCpu(const FakeStepArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void FakeStepCuda(const FakeStepArgs& args, Stream& stream);

inline constexpr Kernel<FakeStepArgs> kFakeStep{"fake_step", FakeStepCpu, FakeStepCuda};

}  // namespace weir::testing
