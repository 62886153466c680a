// The mixers' kernels at the shapes of the 130m models, for one token a session and for whole prompts.
#pragma once

#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace weir::bench {

struct RecurrenceHeads {
  const char* name;
  int num_heads, num_kv_heads, num_k_heads;  // num_k_heads 0: as many as there are states
  int state_dim, head_dim;
  bool two_levels;  // and normalised
  bool decays;

  int k_heads() const { return num_k_heads == 0 ? num_kv_heads : num_k_heads; }
  int queries() const { return num_heads / num_kv_heads; }
};
inline constexpr RecurrenceHeads kLinearShape = {"linear attention", 9, 3, 0, 64, 64, true, false};
inline constexpr RecurrenceHeads kPerformerShape = {"performer", 9, 3, 0, 64, 64, true, true};
inline constexpr RecurrenceHeads kMamba2Shape = {"mamba2", 24, 24, 1, 128, 64, false, true};

// Bytes of q, k, v, decay and o of one token.
double RecurrenceTokenBytes(const RecurrenceHeads& shape);
// Bytes of the state of one sequence that a step moves: the inner level read and written, the outer one read.
double RecurrenceStateBytes(const RecurrenceHeads& shape);
GpuBench::Work RecurrenceWork(GpuBench& bench, DeviceArrays& arrays, const RecurrenceHeads& shape,
                              int sequences, int tokens, int64_t position);

struct AttentionHeads {
  int num_heads, num_kv_heads, head_dim;
};
inline constexpr AttentionHeads kLlama135mShape = {9, 3, 64};
inline constexpr AttentionHeads kWideShape = {32, 8, 128};
std::string AttentionName(const AttentionHeads& shape);
// Keys and values in bf16. Queries of the last `tokens` of position + tokens positions.
GpuBench::Work AttentionWork(GpuBench& bench, DeviceArrays& arrays, const AttentionHeads& shape,
                             int sequences, int tokens, int64_t position);

// Mamba's scan: 1536 channels of 16 states.
inline constexpr int kScanChannels = 1536;
inline constexpr int kScanStateDim = 16;
GpuBench::Work ScanWork(GpuBench& bench, DeviceArrays& arrays, int sequences, int tokens);

// Mamba-2's convolution, of 4 taps over 1792 channels.
inline constexpr int kConvChannels = 1792;
inline constexpr int kConvWidth = 4;
GpuBench::Work ConvWork(GpuBench& bench, DeviceArrays& arrays, int sequences, int tokens);

}  // namespace weir::bench
