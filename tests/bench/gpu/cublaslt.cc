#include "tests/bench/gpu/cublaslt.h"

#include <dlfcn.h>

#include <vector>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir::bench {
namespace {

// The newest first. The functions used are the same in all of them.
constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                  "libcublasLt.so"};

absl::Status Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(fmt::format("{}: cuBLAS status {}", what, static_cast<int>(status)));
}

}  // namespace

#if defined(WEIR_CUDA_EMULATED)
// The emulated library is part of the program.
absl::Status CublasLt::Load(const std::string&) {
  functions_ = {cublasLtCreate,
                cublasLtDestroy,
                cublasLtGetVersion,
                cublasLtMatmulDescCreate,
                cublasLtMatmulDescDestroy,
                cublasLtMatmulDescSetAttribute,
                cublasLtMatrixLayoutCreate,
                cublasLtMatrixLayoutDestroy,
                cublasLtMatmulPreferenceCreate,
                cublasLtMatmulPreferenceDestroy,
                cublasLtMatmulPreferenceSetAttribute,
                cublasLtMatmulAlgoGetHeuristic,
                cublasLtMatmul};
  return absl::OkStatus();
}
#else
absl::Status CublasLt::Load(const std::string& file) {
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  if (!file.empty()) names = {file};
  void* library = nullptr;  // never closed: the driver may hold on to it
  std::string errors;
  for (const std::string& name : names) {
    library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* const error = ::dlerror();
    errors += fmt::format("{}{}", errors.empty() ? "" : "; ", error == nullptr ? name.c_str() : error);
  }
  if (library == nullptr) return absl::NotFoundError(errors);
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(::dlsym(library, name));
    if (*function == nullptr) missing += fmt::format(" {}", name);
  };
  find("cublasLtCreate", &functions_.create);
  find("cublasLtDestroy", &functions_.destroy);
  find("cublasLtGetVersion", &functions_.version);
  find("cublasLtMatmulDescCreate", &functions_.make_operation);
  find("cublasLtMatmulDescDestroy", &functions_.free_operation);
  find("cublasLtMatmulDescSetAttribute", &functions_.set_operation);
  find("cublasLtMatrixLayoutCreate", &functions_.make_layout);
  find("cublasLtMatrixLayoutDestroy", &functions_.free_layout);
  find("cublasLtMatmulPreferenceCreate", &functions_.make_preference);
  find("cublasLtMatmulPreferenceDestroy", &functions_.free_preference);
  find("cublasLtMatmulPreferenceSetAttribute", &functions_.set_preference);
  find("cublasLtMatmulAlgoGetHeuristic", &functions_.choose);
  find("cublasLtMatmul", &functions_.multiply);
  if (!missing.empty()) return absl::NotFoundError(fmt::format("cuBLASLt without{}", missing));
  return absl::OkStatus();
}
#endif

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open(const std::string& file) {
  std::unique_ptr<CublasLt> library(new CublasLt);
  WEIR_RETURN_IF_ERROR(library->Load(file));
  WEIR_RETURN_IF_ERROR(Check(library->functions_.create(&library->handle_), "cublasLtCreate"));
  const size_t version = library->functions_.version();
  library->description_ =
      fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return library;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) functions_.destroy(handle_);
}

CublasLt::Product::~Product() {
  const Functions& functions = library_.functions_;
  if (operation_ != nullptr) functions.free_operation(operation_);
  for (const cublasLtMatrixLayout_t layout : {w_, x_, y_})
    if (layout != nullptr) functions.free_layout(layout);
}

// In the library's order of columns: yᵀ [n, m] = W x ᵀ, with W as its transpose [k, n].
absl::StatusOr<std::unique_ptr<CublasLt::Product>> CublasLt::Prepare(int64_t m, int64_t n, int64_t k) const {
  const auto rows = [](int64_t value) { return static_cast<uint64_t>(value); };
  std::unique_ptr<Product> product(new Product(*this));
  const Functions& f = functions_;
  WEIR_RETURN_IF_ERROR(
      Check(f.make_operation(&product->operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product"));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  WEIR_RETURN_IF_ERROR(
      Check(f.set_operation(product->operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)),
            "its transpose"));
  WEIR_RETURN_IF_ERROR(Check(f.make_layout(&product->w_, CUDA_R_16BF, rows(k), rows(n), k), "W's layout"));
  WEIR_RETURN_IF_ERROR(Check(f.make_layout(&product->x_, CUDA_R_16BF, rows(k), rows(m), k), "x's layout"));
  WEIR_RETURN_IF_ERROR(Check(f.make_layout(&product->y_, CUDA_R_32F, rows(n), rows(m), n), "y's layout"));
  cublasLtMatmulPreference_t preference = nullptr;
  WEIR_RETURN_IF_ERROR(Check(f.make_preference(&preference), "a preference"));
  const size_t workspace = kWorkspaceBytes;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  cublasStatus_t status =
      f.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
  if (status == CUBLAS_STATUS_SUCCESS)
    status = f.choose(handle_, product->operation_, product->w_, product->x_, product->y_, product->y_,
                      preference, 1, &result, &found);
  f.free_preference(preference);
  WEIR_RETURN_IF_ERROR(Check(status, "the choice of an algorithm"));
  if (found < 1) return absl::InternalError("cuBLASLt has no algorithm for this product");
  product->algorithm_ = result.algo;
  return product;
}

absl::Status CublasLt::Product::Run(const TensorView& x, const TensorView& w, const TensorView& y,
                                    const TensorView& workspace, cudaStream_t stream) const {
  const float one = 1.0f, zero = 0.0f;
  return Check(
      library_.functions_.multiply(library_.handle_, operation_, &one, w.raw(), w_, x.raw(), x_, &zero,
                                   y.raw(), y_, y.raw(), y_, &algorithm_, workspace.raw(),
                                   static_cast<size_t>(workspace.num_elements()) * sizeof(float), stream),
      "cublasLtMatmul");
}

}  // namespace weir::bench
