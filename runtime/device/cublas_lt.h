// cuBLASLt as a table of functions that is loaded while the program runs: one binary then also serves where
// cuBLAS is not installed, and an image need not hold its half gigabyte.
#pragma once

#include <cublasLt.h>

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

// The functions that Weir calls, under their names without "cublasLt".
struct CublasLt {
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtGetStatusName) GetStatusName = nullptr;
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) MatrixLayoutInit_internal = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) MatmulAlgoConfigGetAttribute = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;

  std::string Version() const;  // "13.1.0"
};

// Of the machine's libcublasLt.so.13 or .12; stays loaded. NOT_FOUND says what was tried. Any thread.
absl::StatusOr<CublasLt> LoadCublasLt();
// Of the first of these libraries that can be loaded.
absl::StatusOr<CublasLt> LoadCublasLtFrom(std::span<const char* const> libraries);

}  // namespace weir
