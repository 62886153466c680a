// The parts of PackedMatrix::Pack that belong to a backend. `weight` has been checked.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/device/cuda_column.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir::matmul {

// Panels of 32 outputs (layout: row_kernels.h).
absl::StatusOr<DeviceBuffer> PackForCpu(const TensorView& weight, Device& device);

// Plain rows, each padded with zeros to a multiple of kCudaRowValues values.
WEIR_CUDA_COLUMN absl::StatusOr<DeviceBuffer> PackForCuda(const TensorView& weight, Device& device);
inline constexpr int64_t kCudaRowValues = 8;

}  // namespace weir::matmul
