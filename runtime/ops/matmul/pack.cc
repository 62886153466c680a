#include "runtime/ops/matmul/pack.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/matmul/matmul.h"

namespace weir {

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const TensorView& weight, Device& device) {
  const bool cuda = device.backend() == Backend::kCuda;
  if (cuda && &matmul::PackForCuda == nullptr)
    return absl::FailedPreconditionError(fmt::format(
        "matmul has no kernel for device '{}' in this build; run with --device cpu", device.name()));
  if (weight.rank() != 2 || weight.dim(0) < 1 || weight.dim(1) < 1)
    return absl::InvalidArgumentError("a matmul weight must be a matrix [n, k] with n and k of at least 1");
  if (weight.dtype() != DType::kF32 && weight.dtype() != DType::kBF16)
    return absl::InvalidArgumentError(fmt::format(
        "a matmul weight must be f32 or bf16, not {}; convert it while loading", DTypeName(weight.dtype())));
  PackedMatrix matrix;
  matrix.dtype_ = weight.dtype();
  matrix.n_ = weight.dim(0);
  matrix.k_ = weight.dim(1);
  if (cuda) {
    WEIR_ASSIGN_OR_RETURN(matmul::CudaPacked packed, matmul::PackForCuda(weight, device));
    matrix.buffer_ = std::move(packed.weight);
    matrix.product_ = std::move(packed.product);
  } else {
    WEIR_ASSIGN_OR_RETURN(matrix.buffer_, matmul::PackForCpu(weight, device));
  }
  return matrix;
}

std::string DescribeProducts(const Device& device) {
  return device.backend() == Backend::kCuda ? matmul::DescribeCudaProducts(device) : "";
}

}  // namespace weir
