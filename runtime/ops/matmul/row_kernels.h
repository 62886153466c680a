// What an instruction set offers to MatmulCpu, and the layouts that it reads. Included by files compiled for
// different instruction sets: only plain data here, since an inline function could be linked from the wrong
// one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::matmul {

// Weights: panels of 32 outputs, [panels][steps][32 outputs][4 bytes, or 2 of int8]. One step of the sum over
// k is one f32, one pair of bf16 or one pair of int8 per output; outputs beyond n and the odd half of the
// last pair are zero. int8 values are bf16 values too, so that a panel of them can be widened to one of bf16,
// value by value.
inline constexpr int kPanelOutputs = 32;
inline constexpr int kStepBytes = kPanelOutputs * 4;
inline constexpr int kInt8StepBytes = kPanelOutputs * 2;
// Where the pair of an output lies in a step of int8: outputs in fours, those of the upper half of the panel
// between those of the lower. Where bytes are interleaved within 16, as x86 does, the halves come apart.
constexpr int Int8PairAt(int output) {
  constexpr int kFour = 4, kFours = kPanelOutputs / kFour;
  const int four = output / kFour;
  return (four % (kFours / 2) * 2 + four / (kFours / 2)) * (kFour * 2) + output % kFour * 2;
}
// Activations: blocks of rows, [ceil(steps / 16)][rows][16 steps]; missing steps are zero.
inline constexpr int kChunkSteps = 16;

// A block of rows times a run of panels, the whole sum over k in registers.
struct RowBlock {
  const std::byte* x;  // packed activations of these rows
  const std::byte* w;  // the first panel
  int64_t steps;
  int64_t outputs;  // in all panels of the run; the last one may be partly used
  float* y;         // [rows, outputs], rows y_stride apart
  int64_t y_stride;
  const float* scale;  // [outputs], of int8 weights, or null
  std::byte* widened;  // the int8 panels of the run are written here as bf16 panels, or null
  // Weights that are wanted after this block and may be fetched into the cache meanwhile; null: those behind
  // w.
  const std::byte* next;
  int64_t next_bytes;
  const float* bias;  // [outputs] or null
  bool accumulate;
};

using RowsFunction = void (*)(const RowBlock& block);
// x [rows, k], rows x_stride apart.
using PackFunction = void (*)(const float* x, int64_t x_stride, int64_t rows, int64_t k, std::byte* packed);

// Every function of `rows` gives an output of a row the same sequence of operations, so that its bits do not
// depend on how many rows share the block.
struct RowKernels {
  int max_rows;
  int x_step_bytes;  // bytes of one row's step: 4, or 8 where bf16 activations are kept widened to f32
  PackFunction pack_x;
  const RowsFunction* rows;  // [max_rows]; rows[r - 1] computes r rows
};

// int8 weights are widened to bf16 in registers. Where several blocks of rows want the same panels, the first
// one also stores them, and the bf16 functions do the others: with the same packed activations and the same
// sequence of operations for an output.
struct IsaKernels {
  RowKernels f32;
  RowKernels bf16;
  const RowsFunction* int8_rows;       // [bf16.max_rows]; for values from -127 to 127
  const RowsFunction* full_int8_rows;  // the same for -128 too
};

extern const IsaKernels kGenericKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvx512Kernels;
extern const IsaKernels kAvx512Bf16Kernels;
// What VBMI does better: the rest is kAvx512Bf16Kernels'.
extern const RowsFunction* const kAvx512VbmiInt8Rows;
// What AMX does better: the products of bf16, of packed activations as kAvx512Bf16Kernels packs them.
struct AmxKernels {
  int max_rows;
  const RowsFunction* bf16_rows;  // [max_rows], as the others
  const RowsFunction* int8_rows;
  const RowsFunction* full_int8_rows;
};
extern const AmxKernels kAmxKernels;

}  // namespace weir::matmul
