#include "runtime/ops/matmul/pack.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/matmul/isa.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/row_kernels.h"

namespace weir {

namespace {

absl::Status Check(const TensorView& weight, const Device& device) {
  if (device.backend() == Backend::kCuda && &matmul::PackForCuda == nullptr)
    return absl::FailedPreconditionError(fmt::format(
        "matmul has no kernel for device '{}' in this build; run with --device cpu", device.name()));
  if (weight.rank() != 2 || weight.dim(0) < 1 || weight.dim(1) < 1)
    return absl::InvalidArgumentError("a matmul weight must be a matrix [n, k] with n and k of at least 1");
  return absl::OkStatus();
}

// The scales, with zeros up to the end of the last panel.
absl::StatusOr<DeviceBuffer> UploadScales(std::span<const float> scales, Device& device) {
  std::vector<float> padded(scales.begin(), scales.end());
  padded.resize((scales.size() + matmul::kPanelOutputs - 1) / matmul::kPanelOutputs * matmul::kPanelOutputs);
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                        device.Allocate(static_cast<int64_t>(padded.size() * sizeof(float))));
  device.stream().CopyToDevice(buffer.data(), padded.data(), buffer.bytes());
  WEIR_RETURN_IF_ERROR(device.stream().Synchronize());
  return buffer;
}

}  // namespace

absl::StatusOr<PackedMatrix> PackedMatrix::PackAs(const TensorView& weight, Device& device) {
  PackedMatrix matrix;
  matrix.dtype_ = weight.dtype();
  matrix.n_ = weight.dim(0);
  matrix.k_ = weight.dim(1);
  if (device.backend() == Backend::kCuda) {
    WEIR_ASSIGN_OR_RETURN(matmul::CudaPacked packed, matmul::PackForCuda(weight, device));
    matrix.buffer_ = std::move(packed.weight);
    matrix.product_ = std::move(packed.product);
  } else {
    WEIR_ASSIGN_OR_RETURN(matrix.buffer_, matmul::PackForCpu(weight, device));
  }
  return matrix;
}

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const TensorView& weight, Device& device) {
  WEIR_RETURN_IF_ERROR(Check(weight, device));
  if (weight.dtype() != DType::kF32 && weight.dtype() != DType::kBF16)
    return absl::InvalidArgumentError(fmt::format(
        "a matmul weight must be f32 or bf16, not {}; convert it while loading", DTypeName(weight.dtype())));
  return PackAs(weight, device);
}

absl::StatusOr<PackedMatrix> PackedMatrix::PackInt8(const TensorView& values, std::span<const float> scales,
                                                    Device& device) {
  WEIR_RETURN_IF_ERROR(Check(values, device));
  if (values.dtype() != DType::kI8 || std::ssize(scales) != values.dim(0))
    return absl::InvalidArgumentError(
        fmt::format("an int8 weight is int8 [n, k] and n scales, not {} [{}, {}] and {}",
                    DTypeName(values.dtype()), values.dim(0), values.dim(1), scales.size()));
  WEIR_ASSIGN_OR_RETURN(PackedMatrix matrix, PackAs(values, device));
  WEIR_ASSIGN_OR_RETURN(matrix.scales_, UploadScales(scales, device));
  const auto* first = values.data<int8_t>();
  matrix.has_minus_128_ =
      std::find(first, first + values.num_elements(), int8_t{-128}) != first + values.num_elements();
  return matrix;
}

std::string DescribeProducts(const Device& device) {
  if (device.backend() == Backend::kCuda) return matmul::DescribeCudaProducts(device);
  return fmt::format("products of weights on {}: instruction set {}", device.name(),
                     MatmulIsaName(CurrentMatmulIsa()));
}

}  // namespace weir
