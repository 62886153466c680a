// The parts of PackedMatrix::Pack that belong to a backend. `weight` has been checked.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/cuda_column.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir::matmul {

// Panels of 32 outputs (layout: row_kernels.h).
absl::StatusOr<DeviceBuffer> PackForCpu(const TensorView& weight, Device& device);

struct CudaPacked {
  DeviceBuffer weight;                    // plain rows, each padded with zeros to CudaRowBytes
  std::shared_ptr<DeviceBuffer> scratch;  // for kCudaScratchRows rows of x; null with f32 weights
};
// The scratch memory is one for all matrices of a device, and grows here alone: no matmul may run meanwhile,
// nor may a captured one run afterwards.
WEIR_CUDA_COLUMN absl::StatusOr<CudaPacked> PackForCuda(const TensorView& weight, Device& device);
inline constexpr int64_t kCudaScratchRows = 1024;

}  // namespace weir::matmul
