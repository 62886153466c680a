#include "tests/bench/gpu/fastest_product.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir::bench {

absl::Status FastestProduct::Check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(fmt::format("cuBLASLt, {}: {}", what, lt_.GetStatusName(status)));
}

absl::StatusOr<std::unique_ptr<FastestProduct>> FastestProduct::Create(const CublasLt& lt, int64_t m,
                                                                       int64_t n, int64_t k, Device& device) {
  std::unique_ptr<FastestProduct> product(new FastestProduct(lt));
  WEIR_ASSIGN_OR_RETURN(product->workspace_, device.Allocate(kWorkspaceBytes));
  WEIR_RETURN_IF_ERROR(product->Prepare(m, n, k));
  return product;
}

FastestProduct::~FastestProduct() {
  if (product_ != nullptr) lt_.MatmulDescDestroy(product_);
  if (handle_ != nullptr) lt_.Destroy(handle_);
}

// In the library's order of columns: yᵀ [n, m] = W xᵀ, with W as the transpose of [k, n].
absl::Status FastestProduct::Prepare(int64_t m, int64_t n, int64_t k) {
  WEIR_RETURN_IF_ERROR(Check(lt_.Create(&handle_), "its handle"));
  WEIR_RETURN_IF_ERROR(Check(lt_.MatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product"));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  WEIR_RETURN_IF_ERROR(
      Check(lt_.MatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
            "its transpose"));
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t* out, cudaDataType_t type, int64_t rows,
                          int64_t columns) {
    return Check(lt_.MatrixLayoutInit_internal(out, sizeof(*out), type, static_cast<uint64_t>(columns),
                                               static_cast<uint64_t>(rows), columns),
                 "a layout");
  };
  WEIR_RETURN_IF_ERROR(layout(&w_, CUDA_R_16BF, n, k));
  WEIR_RETURN_IF_ERROR(layout(&x_, CUDA_R_16BF, m, k));
  WEIR_RETURN_IF_ERROR(layout(&y_, CUDA_R_32F, m, n));
  cublasLtMatmulPreference_t preference = nullptr;
  WEIR_RETURN_IF_ERROR(Check(lt_.MatmulPreferenceCreate(&preference), "a preference"));
  const uint64_t workspace = kWorkspaceBytes;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasStatus_t status = lt_.MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
  if (status == CUBLAS_STATUS_SUCCESS)
    status =
        lt_.MatmulAlgoGetHeuristic(handle_, product_, &w_, &x_, &y_, &y_, preference, 1, &result, &found);
  lt_.MatmulPreferenceDestroy(preference);
  WEIR_RETURN_IF_ERROR(Check(status, "the choice of an algorithm"));
  if (found < 1) return absl::InternalError("cuBLASLt has no algorithm for this product");
  algorithm_ = result.algo;
  return absl::OkStatus();
}

absl::Status FastestProduct::Run(const TensorView& x, const TensorView& w, const TensorView& y,
                                 Stream& stream) {
  const float one = 1.0f, zero = 0.0f;
  return Check(lt_.Matmul(handle_, product_, &one, w.raw(), &w_, x.raw(), &x_, &zero, y.raw(), &y_, y.raw(),
                          &y_, &algorithm_, workspace_.data(), static_cast<size_t>(kWorkspaceBytes),
                          static_cast<cudaStream_t>(stream.native())),
               "a product");
}

}  // namespace weir::bench
