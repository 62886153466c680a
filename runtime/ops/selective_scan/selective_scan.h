// The selective scan of a state-space model (Gu & Dao 2023, algorithm 2: S6), a diagonal recurrence whose
// step size and projections depend on the token:
//   Δ = softplus(dt + dt_bias)
//   h[n] ← exp(Δ A[n]) h[n] + Δ B[n] u,   y = (Σ_n C[n] h[n] + D u) · silu(z)
// for each channel on its own; B and C are shared by all channels of a token.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/ops/ragged_batch.h"

namespace weir {

inline constexpr int kMaxScanStateDim = 512;

// Every element of state and y is one chain of operations over the tokens in their order. So results have the
// same bits however a sequence is cut into runs, whatever shares the batch, and with any number of threads.
// Denormals count as zero.
struct SelectiveScanArgs {
  RaggedBatch batch;
  TensorView u;        // f32 [num_tokens, channels]
  TensorView dt;       // f32 [num_tokens, channels]
  TensorView dt_bias;  // f32 [channels] or empty
  TensorView a;        // f32 [state_dim, channels], not above 0; state_dim at most kMaxScanStateDim
  TensorView b;        // f32 [num_tokens, state_dim]
  TensorView c;        // f32 [num_tokens, state_dim]
  TensorView d;        // f32 [channels]
  TensorView z;        // f32 [num_tokens, channels], or empty: no gate
  TensorView state;    // f32 [slots, state_dim, channels]; read and updated in place
  TensorView y;        // f32 [num_tokens, channels]; may be u, dt or z itself
};

void SelectiveScanCpu(const SelectiveScanArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void SelectiveScanCuda(const SelectiveScanArgs& args, Stream& stream);
// One token after another in double precision. state: dense [slots, state_dim, channels], in and out;
// y: dense [num_tokens, channels].
void SelectiveScanReference(const SelectiveScanArgs& args, double* state, double* y);

inline constexpr Kernel<SelectiveScanArgs> kSelectiveScan{"selective_scan", SelectiveScanCpu,
                                                          SelectiveScanCuda};

}  // namespace weir
