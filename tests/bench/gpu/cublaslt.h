// cuBLASLt as far as the benchmark compares with it, opened when the program runs: nobody needs it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tensor/tensor.h"

namespace weir::bench {

class CublasLt {
 public:
  // `file`: the library's; empty: by the names that the loader may know. NOT_FOUND says what was tried.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Open(const std::string& file);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  const std::string& description() const { return description_; }

  // y = x Wᵀ for x bf16 [m, k], w bf16 [n, k], y f32 [m, n], all dense, with f32 sums and the algorithm that
  // the library thinks best.
  class Product {
   public:
    ~Product();
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    absl::Status Run(const TensorView& x, const TensorView& w, const TensorView& y,
                     const TensorView& workspace, cudaStream_t stream) const;

   private:
    friend class CublasLt;
    explicit Product(const CublasLt& library) : library_(library) {}
    const CublasLt& library_;
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
    cublasLtMatmulAlgo_t algorithm_{};
  };
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
  absl::StatusOr<std::unique_ptr<Product>> Prepare(int64_t m, int64_t n, int64_t k) const;

 private:
  // The library's functions, typed by its header.
  struct Functions {
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtGetVersion) version = nullptr;
    decltype(&cublasLtMatmulDescCreate) make_operation = nullptr;
    decltype(&cublasLtMatmulDescDestroy) free_operation = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) free_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) free_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
    decltype(&cublasLtMatmul) multiply = nullptr;
  };
  CublasLt() = default;
  absl::Status Load(const std::string& file);

  Functions functions_;
  cublasLtHandle_t handle_ = nullptr;
  std::string description_;
};

}  // namespace weir::bench
