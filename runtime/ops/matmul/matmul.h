// y = x Wᵀ (+ bias) (+ y): the projection of every layer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel.h"
#include "runtime/tensor/tensor.h"

namespace weir {

namespace matmul {
struct CudaProduct;
}

// A weight [n, k] laid out for its backend: once at load, then read only. f32 weights multiply in f32; bf16
// weights multiply bf16-rounded activations with f32 accumulation; int8 weights do the same, for their values
// are bf16 values too, and each sum is multiplied by the scale of its output. Owned by the model; outlived by
// its Device.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `weight`: f32 or bf16 [n, k] in host memory (rows may be strided). INVALID_ARGUMENT for other types and
  // shapes, FAILED_PRECONDITION for a device without matmul, RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<PackedMatrix> Pack(const TensorView& weight, Device& device);
  // W = diag(scales) values: `values` int8 [n, k], dense, and `scales` [n], in host memory. Errors as above.
  static absl::StatusOr<PackedMatrix> PackInt8(const TensorView& values, std::span<const float> scales,
                                               Device& device);

  DType dtype() const { return dtype_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  // On the CPU with n rounded up to 32 and k to the pair of a bf16 or int8; on CUDA with k rounded up to 8,
  // or 16 of int8.
  int64_t bytes() const { return buffer_.bytes() + scales_.bytes(); }
  const std::byte* data() const { return buffer_.data(); }  // on the device
  // [n] on the device, of int8 weights; null for others.
  const float* scales() const { return reinterpret_cast<const float*>(scales_.data()); }
  // Whether a value of int8 weights is -128, which QuantizeRows does not make, but others do.
  bool has_minus_128() const { return has_minus_128_; }
  // How it is multiplied, bf16 shared with others of its shape; null of f32 and on the CPU.
  const matmul::CudaProduct* cuda_product() const { return product_.get(); }

 private:
  static absl::StatusOr<PackedMatrix> PackAs(const TensorView& weight, Device& device);

  DType dtype_ = DType::kF32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  bool has_minus_128_ = false;
  DeviceBuffer buffer_;
  DeviceBuffer scales_;
  std::shared_ptr<const matmul::CudaProduct> product_;
};

// How products of the weights on a device are computed, a line for the log: on a CPU the instruction set, on
// a GPU who computes those of bf16; empty where there is no choice.
std::string DescribeProducts(const Device& device);

struct MatmulArgs {
  TensorView x;                          // f32 [m, k]
  const PackedMatrix* weight = nullptr;  // [n, k]
  TensorView y;                          // f32 [m, n]; must not overlap x
  TensorView bias;                       // f32 [n] or empty
  bool accumulate = false;               // y = y + (x Wᵀ + bias) instead of overwriting it
};

// A row of y depends on its row of x alone, bit for bit, whatever m, its place among the rows and the number
// of threads are: the order of the sum over k is fixed. (Another instruction set may round otherwise, and so
// may cuBLASLt against the CUDA column's own kernels.)
// Denormals count as zero on the CPU. Never allocates after the calling thread's first call with the largest
// m and k.
void MatmulCpu(const MatmulArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void MatmulCuda(const MatmulArgs& args, Stream& stream);
// Double precision; rounds activations to bf16 where the weight is bf16 or int8. x f32 [m, k], weight f32,
// bf16 or int8 [n, k] (not packed), `scales` [n] of int8, bias f32 [n] or empty, y [m, n] dense.
void MatmulReference(const TensorView& x, const TensorView& weight, const TensorView& bias, double* y,
                     std::span<const float> scales = {});

// Row `row` of a packed matrix on the CPU: out f32 [k], exact, or of int8 value times scale rounded to f32.
// For a tied embedding that is stored only once.
void PackedRowToF32(const PackedMatrix& matrix, int64_t row, float* out);

struct GatherPackedRowsArgs {
  const PackedMatrix* table = nullptr;  // [rows, width]
  TensorView index;                     // i32 [num_tokens], each in [0, rows)
  TensorView y;                         // f32 [num_tokens, width]
};
void GatherPackedRowsCpu(const GatherPackedRowsArgs& args, Stream& stream);
WEIR_CUDA_COLUMN void GatherPackedRowsCuda(const GatherPackedRowsArgs& args, Stream& stream);

inline constexpr Kernel<MatmulArgs> kMatmul{"matmul", MatmulCpu, MatmulCuda};
inline constexpr Kernel<GatherPackedRowsArgs> kGatherPackedRows{"gather_packed_rows", GatherPackedRowsCpu,
                                                                GatherPackedRowsCuda};

}  // namespace weir
