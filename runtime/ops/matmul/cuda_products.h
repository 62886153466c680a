// What the weights on a CUDA device share: memory that their products use in turn, and how the products of
// each shape are computed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/ops/matmul/cublas_plan.h"

namespace weir::matmul {

// Of a device; freed with the last of its weights. Grows while weights are packed and then only: no product
// may run meanwhile, nor may a captured one run afterwards.
struct CudaProductMemory {
  DeviceBuffer rows;                      // bf16: kCudaScratchRows rows of x of the widest weight
  DeviceBuffer staged;                    // f32: kStagedRows rows of y of the widest weight with a plan
  std::unique_ptr<CublasContext> cublas;  // of bf16 weights; null where there is none
  std::string no_cublas;                  // why; empty before the first of them
};

// Rows of y that are computed apart from y where cuBLASLt cannot write to it.
inline constexpr int64_t kStagedRows = 16;

// How bf16 or int8 weights [n, k] are multiplied on a device. Immutable.
struct CudaProduct {
  std::shared_ptr<const CudaProductMemory> memory;
  int64_t max_rows = 0;              // of one product by the plan
  std::unique_ptr<CublasPlan> plan;  // null: by the project's own kernels
};

// The product of weights [n, k] on `device`, planned and checked if it is the first of its shape there.
// `weight`: bf16 [n, padded_k] to be uploaded later, which the check fills with numbers of its own.
absl::StatusOr<std::shared_ptr<const CudaProduct>> PlanCudaProduct(int64_t n, int64_t padded_k, void* weight,
                                                                   Device& device);
// By the project's own kernels, as int8 weights always are: cuBLASLt has no such product.
absl::StatusOr<std::shared_ptr<const CudaProduct>> OwnCudaProduct(int64_t padded_k, Device& device);

}  // namespace weir::matmul
