// WeightLoader: from tensors of a checkpoint to weights on a device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/weights/weight_map.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/tensor/tensor.h"

namespace weir {

// A small parameter (norm weight, bias, filter), f32 on the device.
class DeviceTensor {
 public:
  DeviceTensor() = default;
  DeviceTensor(DeviceBuffer buffer, TensorView view) : buffer_(std::move(buffer)), view_(view) {}
  const TensorView& view() const { return view_; }
  int64_t bytes() const { return buffer_.bytes(); }
  DeviceBuffer TakeBuffer() && { return std::move(buffer_); }

 private:
  DeviceBuffer buffer_;
  TensorView view_;
};

// One of several matrices that are multiplied as one.
struct MatrixPart {
  std::string name;
  int64_t n = 0;  // rows
};

// Used while a model loads; borrows both arguments.
class WeightLoader {
 public:
  // `served`: what matrices become, kF32, kBF16 or kI8; unset: what they are.
  WeightLoader(const WeightMap& weights, Device& device, std::optional<DType> served = std::nullopt)
      : weights_(weights), device_(device), served_(served) {}

  // [n, k]. bf16 and int8 stay what they are; f16 and f32 are kept as f32, so that no bit is lost.
  absl::StatusOr<PackedMatrix> Matrix(const std::string& name, int64_t n, int64_t k) const;
  // Several [n_i, k] matrices on top of each other, in this order: int8 where one is, else f32 unless all are
  // bf16.
  absl::StatusOr<PackedMatrix> Matrix(std::span<const MatrixPart> parts, int64_t k) const;
  absl::StatusOr<DeviceTensor> Vector(const std::string& name, int64_t n) const;
  // Depthwise filters [channels_i, 1, width], on top of each other, as f32 [width, channels].
  absl::StatusOr<DeviceTensor> ConvFilter(std::span<const MatrixPart> parts, int64_t width) const;
  // The values of a small tensor of exactly this shape, finite, for what is computed from them before it is
  // uploaded.
  absl::StatusOr<std::vector<float>> Values(const std::string& name, const std::vector<int64_t>& shape) const;
  absl::StatusOr<DeviceTensor> Upload(std::span<const float> values, int64_t rows, int64_t columns) const;
  absl::StatusOr<DeviceTensor> Upload(std::span<const float> values) const;  // rank 1

  // What a forward pass launches is asked for while the model loads: an error names an operation that the
  // device lacks in this build.
  template <class... Args>
  absl::Status Require(const Kernel<Args>&... kernels) const {
    absl::Status status;
    static_cast<void>(((status = RequireColumn(kernels, device_.backend())).ok() && ...));
    return status;
  }
  // And so is a size: `limit` is that of the kernels on CUDA.
  absl::Status RequireCudaLimit(std::string_view what, int64_t value, int64_t limit) const;
  // The GPU's own limit of a linear recurrence whose states `queries` heads read each.
  absl::Status RequireRecurrenceFits(int64_t state_dim, int64_t head_dim, int64_t queries) const;

  const WeightMap& weights() const { return weights_; }
  // Names of all matrices so far, in the order in which they were asked for.
  const std::vector<std::string>& matrices() const { return matrices_; }
  // Whether a matrix became something else than it would have without `served`.
  bool converted() const { return converted_; }

 private:
  absl::StatusOr<DeviceTensor> UploadAs(std::span<const float> values,
                                        std::initializer_list<int64_t> shape) const;

  const WeightMap& weights_;
  Device& device_;
  const std::optional<DType> served_;
  mutable std::vector<std::string> matrices_;
  mutable bool converted_ = false;
};

}  // namespace weir
