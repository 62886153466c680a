// φ(x) = elu(x) + 1 (Katharopoulos et al. 2020), elementwise.
#pragma once

#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

struct EluPlusOneArgs {
  TensorView x;  // f32 [num_tokens, channels]
  TensorView y;  // like x; may be x itself
};

void EluPlusOneCpu(const EluPlusOneArgs& args, Stream& stream);
void EluPlusOneReference(const EluPlusOneArgs& args, double* y);

inline constexpr Kernel<EluPlusOneArgs> kEluPlusOne{"elu_plus_one", EluPlusOneCpu, nullptr};

}  // namespace weir
