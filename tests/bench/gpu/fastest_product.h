// A product by cuBLASLt with the algorithm that it thinks best for exactly these sizes, which is what Weir's
// products are compared with; those keep to one algorithm for every number of rows (cublas_plan.h).
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/cublas_lt.h"
#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace weir::bench {

// y = x Wᵀ for x bf16 [m, k], w bf16 [n, k], y f32 [m, n], all dense, with f32 sums.
class FastestProduct {
 public:
  static absl::StatusOr<std::unique_ptr<FastestProduct>> Create(const CublasLt& lt, int64_t m, int64_t n,
                                                                int64_t k, Device& device);
  ~FastestProduct();
  FastestProduct(const FastestProduct&) = delete;
  FastestProduct& operator=(const FastestProduct&) = delete;

  absl::Status Run(const TensorView& x, const TensorView& w, const TensorView& y, Stream& stream);

 private:
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

  explicit FastestProduct(const CublasLt& lt) : lt_(lt) {}
  absl::Status Prepare(int64_t m, int64_t n, int64_t k);
  absl::Status Check(cublasStatus_t status, const char* what) const;

  const CublasLt lt_;
  DeviceBuffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayoutOpaque_t w_{}, x_{}, y_{};
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace weir::bench
