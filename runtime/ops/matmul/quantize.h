// Weight-only int8: a matrix as integers and one scale per row, which is an output channel.
//
// Rows were chosen by measurement: over the zoo, scales per row lose at most 0.01 % in bits per byte, and
// groups of 32 or 64 values gain nothing that can be told from that, while they would cut the sum over k into
// pieces.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/tensor/tensor.h"

namespace weir {

inline constexpr int kInt8Max = 127;

// For each row of `weight` (f32, f16 or bf16 [n, k], finite; rows may be strided): scales[row] = max |w| /
// 127, and values [n, k] the nearest integers to w / scale (ties to even), from -127 to 127. Rows of zeros,
// or of numbers below the normal floats, have scale 0. Any thread.
void QuantizeRows(const TensorView& weight, std::span<int8_t> values, std::span<float> scales);

}  // namespace weir
