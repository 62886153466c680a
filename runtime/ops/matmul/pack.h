// The parts of PackedMatrix::Pack that belong to a backend. `weight` has been checked.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/device/cuda_column.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir::matmul {

// Panels of 32 outputs (layout: row_kernels.h). f32, bf16 or int8.
absl::StatusOr<DeviceBuffer> PackForCpu(const TensorView& weight, Device& device);

struct CudaProduct;  // cuda_products.h

struct CudaPacked {
  // Rows, each padded with zeros to 8 values, 16 of int8; plain but for int8 (Int8Place in matmul_cuda.h).
  DeviceBuffer weight;
  std::shared_ptr<const CudaProduct> product;  // null with f32 weights
};
// The first weight of a shape on a device has its product planned and checked. Scratch memory is one for all
// weights of a device, and grows here alone: no matmul may run meanwhile, nor may a captured one run
// afterwards.
WEIR_CUDA_COLUMN absl::StatusOr<CudaPacked> PackForCuda(const TensorView& weight, Device& device);
inline constexpr int64_t kCudaScratchRows = 1024;

// DescribeProducts of a CUDA device.
WEIR_CUDA_COLUMN std::string DescribeCudaProducts(const Device& device);

}  // namespace weir::matmul
