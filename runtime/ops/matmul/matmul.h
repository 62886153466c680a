// y = x Wᵀ (+ bias) (+ y): the projection of every layer.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// A weight [n, k] laid out for its backend: once at load, then read only. f32 weights multiply in f32; bf16
// weights multiply bf16-rounded activations with f32 accumulation.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `weight`: f32 or bf16 [n, k] in host memory (rows may be strided).
  static absl::StatusOr<PackedMatrix> Pack(const TensorView& weight, Device& device);

  DType dtype() const { return dtype_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t bytes() const { return buffer_.bytes(); }
  const std::byte* data() const { return buffer_.data(); }

 private:
  DType dtype_ = DType::kF32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  DeviceBuffer buffer_;
};

struct MatmulArgs {
  TensorView x;                          // f32 [m, k]
  const PackedMatrix* weight = nullptr;  // [n, k]
  TensorView y;                          // f32 [m, n]
  TensorView bias;                       // f32 [n] or empty
  bool accumulate = false;               // add to y instead of overwriting it
};

// A row of y depends on its row of x alone, bit for bit, whatever m is: the order of the sum over k is fixed.
// Never allocates after the first call with the largest m.
void MatmulCpu(const MatmulArgs& args, Stream& stream);
// Double precision; rounds activations to bf16 where the weight is bf16.
void MatmulReference(const TensorView& x, const TensorView& weight, const TensorView& bias, double* y);

inline constexpr Kernel<MatmulArgs> kMatmul{"matmul", MatmulCpu, nullptr};

}  // namespace weir
