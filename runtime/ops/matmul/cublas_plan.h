// y (+)= x Wᵀ by cuBLASLt for weights of one shape: bf16 factors, f32 sums.
//
// The batch law wants one order of the sum over k, however many rows x has. So a plan holds one algorithm,
// with its tile, stages and swizzle as they are and K never split, for every number of rows; cuBLASLt's
// heuristics choose it for kPlanRows of them. NVIDIA promises no more than equal bits for equal calls: what a
// plan gives is checked where it is to be used (cublas_check.h).
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/cublas_lt.h"
#include "runtime/device/device.h"

namespace weir::matmul {

// A device's handle and workspace. Freed before its Device.
class CublasContext {
 public:
  static constexpr int64_t kWorkspaceBytes = int64_t{4} << 20;

  static absl::StatusOr<std::unique_ptr<CublasContext>> Create(const CublasLt& lt, Device& device);
  ~CublasContext();
  CublasContext(const CublasContext&) = delete;
  CublasContext& operator=(const CublasContext&) = delete;

  const CublasLt& lt() const { return lt_; }
  cublasLtHandle_t handle() const { return handle_; }
  void* workspace() const { return workspace_.data(); }

 private:
  CublasContext(const CublasLt& lt, DeviceBuffer workspace) : lt_(lt), workspace_(std::move(workspace)) {}

  const CublasLt lt_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
};

// Immutable once its algorithm is chosen. The context outlives it.
class CublasPlan {
 public:
  static constexpr int kPlanRows = 128;

  // `k` with its padding: a multiple of 8, so that rows of x and W start at multiples of 16 bytes. Null where
  // cuBLASLt does not take the shape.
  static std::unique_ptr<CublasPlan> Create(const CublasContext& context, int64_t n, int64_t k);
  ~CublasPlan();
  CublasPlan(const CublasPlan&) = delete;
  CublasPlan& operator=(const CublasPlan&) = delete;

  // The heuristics' best algorithms that fit the workspace and do not split K, best first.
  std::vector<cublasLtMatmulAlgo_t> Candidates() const;
  void Use(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }

  // Whether Run can write there.
  bool TakesOutput(const float* y, int64_t y_stride) const;
  // x [m, k] and w [n, k] dense, y [m, n]; m of at least 1. y = x Wᵀ, or y + x Wᵀ rounded once more. Can be
  // captured, and allocates nothing.
  cublasStatus_t Run(const void* x, const void* w, float* y, int64_t y_stride, int64_t m, bool accumulate,
                     cudaStream_t stream) const;

 private:
  CublasPlan(const CublasContext& context, int64_t n, int64_t k) : context_(context), n_(n), k_(k) {}
  uint32_t OutputAlignment() const { return n_ % 4 == 0 ? 16 : 4; }
  // Row-major [rows, columns] is cuBLASLt's column-major [columns, rows].
  cublasStatus_t Layout(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type, int64_t rows,
                        int64_t columns, int64_t stride) const;

  const CublasContext& context_;
  const int64_t n_, k_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace weir::matmul
