#include "runtime/ops/matmul/cublas_plan.h"

#include <utility>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir::matmul {
namespace {

constexpr int kMaxCandidates = 8;

// What the heuristics may choose from.
class Preference {
 public:
  explicit Preference(const CublasLt& lt) : lt_(lt) {
    if (lt_.MatmulPreferenceCreate(&preference_) != CUBLAS_STATUS_SUCCESS) preference_ = nullptr;
    ok_ = preference_ != nullptr;
  }
  ~Preference() {
    if (preference_ != nullptr) lt_.MatmulPreferenceDestroy(preference_);
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void Set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    ok_ = ok_ && lt_.MatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)) ==
                     CUBLAS_STATUS_SUCCESS;
  }
  bool ok() const { return ok_; }
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  const CublasLt& lt_;
  cublasLtMatmulPreference_t preference_ = nullptr;
  bool ok_ = false;
};

// Whether a sum over k is one chain, not parts that are added up afterwards.
bool KeepsKWhole(const CublasLt& lt, const cublasLtMatmulAlgo_t& algorithm) {
  const auto value = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t v = 0;
    size_t written = 0;
    const cublasStatus_t status =
        lt.MatmulAlgoConfigGetAttribute(&algorithm, attribute, &v, sizeof(v), &written);
    return status == CUBLAS_STATUS_SUCCESS ? v : ~0u;
  };
  return value(CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
         value(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) == CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasContext>> CublasContext::Create(const CublasLt& lt, Device& device) {
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer workspace, device.Allocate(kWorkspaceBytes));  // makes it current, too
  std::unique_ptr<CublasContext> context(new CublasContext(lt, std::move(workspace)));
  const cublasStatus_t status = lt.Create(&context->handle_);
  if (status == CUBLAS_STATUS_SUCCESS) return context;
  context->handle_ = nullptr;
  return absl::FailedPreconditionError(
      fmt::format("cublasLtCreate on {} gives {}", device.name(), lt.GetStatusName(status)));
}

CublasContext::~CublasContext() {
  if (handle_ != nullptr) lt_.Destroy(handle_);
}

std::unique_ptr<CublasPlan> CublasPlan::Create(const CublasContext& context, int64_t n, int64_t k) {
  const CublasLt& lt = context.lt();
  std::unique_ptr<CublasPlan> plan(new CublasPlan(context, n, k));
  if (lt.MatmulDescCreate(&plan->product_, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) {
    plan->product_ = nullptr;
    return nullptr;
  }
  // Column-major, yᵀ [n, m] = op(wᵀ) xᵀ, where wᵀ is [k, n] and to be transposed, and xᵀ is [k, m].
  const cublasOperation_t transpose = CUBLAS_OP_T;
  if (lt.MatmulDescSetAttribute(plan->product_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)) !=
      CUBLAS_STATUS_SUCCESS)
    return nullptr;
  return plan;
}

CublasPlan::~CublasPlan() {
  if (product_ != nullptr) context_.lt().MatmulDescDestroy(product_);
}

cublasStatus_t CublasPlan::Layout(cublasLtMatrixLayoutOpaque_t* layout, cudaDataType_t type, int64_t rows,
                                  int64_t columns, int64_t stride) const {
  return context_.lt().MatrixLayoutInit_internal(
      layout, sizeof(*layout), type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), stride);
}

std::vector<cublasLtMatmulAlgo_t> CublasPlan::Candidates() const {
  const CublasLt& lt = context_.lt();
  Preference preference(lt);
  preference.Set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{CublasContext::kWorkspaceBytes});
  preference.Set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{16});
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{16});
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, OutputAlignment());
  preference.Set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, OutputAlignment());
  cublasLtMatrixLayoutOpaque_t w, x, y;
  if (!preference.ok() || Layout(&w, CUDA_R_16BF, n_, k_, k_) != CUBLAS_STATUS_SUCCESS ||
      Layout(&x, CUDA_R_16BF, kPlanRows, k_, k_) != CUBLAS_STATUS_SUCCESS ||
      Layout(&y, CUDA_R_32F, kPlanRows, n_, n_) != CUBLAS_STATUS_SUCCESS)
    return {};
  cublasLtMatmulHeuristicResult_t results[kMaxCandidates] = {};
  int count = 0;
  if (lt.MatmulAlgoGetHeuristic(context_.handle(), product_, &w, &x, &y, &y, preference.get(), kMaxCandidates,
                                results, &count) != CUBLAS_STATUS_SUCCESS)
    return {};
  std::vector<cublasLtMatmulAlgo_t> candidates;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= CublasContext::kWorkspaceBytes &&
        KeepsKWhole(lt, result.algo))
      candidates.push_back(result.algo);
  }
  return candidates;
}

bool CublasPlan::TakesOutput(const float* y, int64_t y_stride) const {
  return reinterpret_cast<uintptr_t>(y) % OutputAlignment() == 0 &&
         y_stride * static_cast<int64_t>(sizeof(float)) % OutputAlignment() == 0;
}

cublasStatus_t CublasPlan::Run(const void* x, const void* w, float* y, int64_t y_stride, int64_t m,
                               bool accumulate, cudaStream_t stream) const {
  cublasLtMatrixLayoutOpaque_t w_layout, x_layout, y_layout;
  cublasStatus_t status = Layout(&w_layout, CUDA_R_16BF, n_, k_, k_);
  if (status == CUBLAS_STATUS_SUCCESS) status = Layout(&x_layout, CUDA_R_16BF, m, k_, k_);
  if (status == CUBLAS_STATUS_SUCCESS) status = Layout(&y_layout, CUDA_R_32F, m, n_, y_stride);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const float one = 1.0f;
  const float beta = accumulate ? 1.0f : 0.0f;
  return context_.lt().Matmul(context_.handle(), product_, &one, w, &w_layout, x, &x_layout, &beta, y,
                              &y_layout, y, &y_layout, &algorithm_, context_.workspace(),
                              static_cast<size_t>(CublasContext::kWorkspaceBytes), stream);
}

}  // namespace weir::matmul
