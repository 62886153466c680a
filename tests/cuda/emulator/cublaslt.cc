// The part of cuBLASLt that the product uses, behind NVIDIA's own header: D = alpha op(A) op(B) + beta C by
// plain loops. What is not emulated is refused, so nothing is computed differently in silence.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cuda/emulator/device_heap.h"
#include "tests/cuda/emulator/device_state.h"
#include "tests/cuda/emulator/reports.h"
#include "tests/cuda/emulator/streams.h"

namespace weir::emulator {
namespace {

struct MatmulDescription {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
};

struct MatrixLayout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t leading_dimension;
  int32_t order = CUBLASLT_ORDER_COL;
  int32_t batch = 1;
  int64_t batch_stride = 0;

  size_t At(uint64_t row, uint64_t column) const {
    const auto ld = static_cast<uint64_t>(leading_dimension);
    return order == CUBLASLT_ORDER_ROW ? row * ld + column : row + column * ld;
  }
  size_t Elements() const {
    return static_cast<size_t>(batch - 1) * static_cast<size_t>(batch_stride) + At(rows - 1, columns - 1) + 1;
  }
};

struct MatmulPreference {
  uint64_t workspace_bytes = 0;
};

size_t ElementBytes(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}

float Load(const void* data, cudaDataType_t type, size_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
  return __half2float(static_cast<const __half*>(data)[i]);
}

void Store(void* data, cudaDataType_t type, size_t i, float value) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = value;
  else if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
  else
    static_cast<__half*>(data)[i] = __float2half(value);
}

struct Matmul {
  int algorithm;
  MatmulDescription description;
  MatrixLayout a_layout, b_layout, c_layout, d_layout;
  float alpha, beta;
  const void *a, *b, *c;
  void* d;

  bool transposes_a() const { return description.transpose_a != CUBLAS_OP_N; }
  bool transposes_b() const { return description.transpose_b != CUBLAS_OP_N; }
  uint64_t m() const { return transposes_a() ? a_layout.columns : a_layout.rows; }
  uint64_t n() const { return transposes_b() ? b_layout.rows : b_layout.columns; }
  uint64_t k() const { return transposes_a() ? a_layout.rows : a_layout.columns; }
};

// Why the arguments do not fit together, or empty.
std::string Objection(const Matmul& op) {
  const auto shape_is = [](const MatrixLayout& l, uint64_t rows, uint64_t columns) {
    return l.rows == rows && l.columns == columns;
  };
  if ((op.transposes_b() ? op.b_layout.columns : op.b_layout.rows) != op.k())
    return "A's and B's inner sizes differ";
  if (!shape_is(op.d_layout, op.m(), op.n())) return "D's shape is not that of the product";
  if (!shape_is(op.c_layout, op.m(), op.n())) return "C's shape is not that of the product";
  if (op.m() == 0 || op.n() == 0 || op.k() == 0) return "a size is 0";
  for (const MatrixLayout* const l : {&op.a_layout, &op.b_layout, &op.c_layout, &op.d_layout}) {
    const uint64_t least = l->order == CUBLASLT_ORDER_ROW ? l->columns : l->rows;
    if (l->leading_dimension < static_cast<int64_t>(least)) return "a leading dimension is too small";
    if (l->batch != op.d_layout.batch) return "batch counts differ";
    if (ElementBytes(l->type) == 0) return "only float32, bfloat16 and float16 are emulated";
  }
  if (op.a_layout.type != op.b_layout.type) return "A and B are of different types";
  if (op.c == nullptr && op.beta != 0) return "beta is not 0 and C is null";
  return "";
}

// Why a GPU might compute it and this does not, or empty.
std::string NotEmulated(const MatmulDescription& description) {
  if (description.scale != CUDA_R_32F) return "scales are not float32";
  if (description.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return "scales are not host memory";
  if (description.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return "an epilogue";
  const cublasComputeType_t compute = description.compute;
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      compute != CUBLAS_COMPUTE_32F_FAST_TF32 && compute != CUBLAS_COMPUTE_32F_FAST_16BF)
    return "sums are not float32";
  return "";
}

bool OperandsExist(const Matmul& op) {
  DeviceHeap& heap = DeviceHeap::Get();
  const auto exists = [&heap](const void* data, const MatrixLayout& l, const char* name) {
    return heap.CheckRange(data, l.Elements() * ElementBytes(l.type), name);
  };
  return exists(op.a, op.a_layout, "cublasLtMatmul's A") && exists(op.b, op.b_layout, "cublasLtMatmul's B") &&
         exists(op.d, op.d_layout, "cublasLtMatmul's D") &&
         (op.beta == 0 || exists(op.c, op.c_layout, "cublasLtMatmul's C"));
}

// op(matrix) as float32 [depth][count], depth being the inner size.
std::vector<float> ByDepth(const void* data, const MatrixLayout& layout, size_t batch, uint64_t depth,
                           uint64_t count, bool depth_is_row) {
  std::vector<float> values(static_cast<size_t>(depth * count));
  const size_t first = batch * static_cast<size_t>(layout.batch_stride);
  for (uint64_t j = 0; j < count; ++j)
    for (uint64_t i = 0; i < depth; ++i)
      values[i * count + j] =
          Load(data, layout.type, first + (depth_is_row ? layout.At(i, j) : layout.At(j, i)));
  return values;
}

// Each sum is one chain over k, from the beginning or from the end.
void MultiplyOne(const Matmul& op, size_t batch) {
  const uint64_t rows = op.m(), columns = op.n(), depth = op.k();
  const std::vector<float> a = ByDepth(op.a, op.a_layout, batch, depth, rows, op.transposes_a());
  const std::vector<float> b = ByDepth(op.b, op.b_layout, batch, depth, columns, !op.transposes_b());
  const auto reverses = Options().cublaslt_reverses;
  const size_t first_c = batch * static_cast<size_t>(op.c_layout.batch_stride);
  const size_t first_d = batch * static_cast<size_t>(op.d_layout.batch_stride);
  std::vector<float> sums(static_cast<size_t>(rows));
  for (uint64_t column = 0; column < columns; ++column) {
    const bool reversed = reverses != nullptr && reverses(op.algorithm, columns, column);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (uint64_t i = 0; i < depth; ++i) {
      const uint64_t at = reversed ? depth - 1 - i : i;
      const float x = b[at * columns + column];
      const float* const w = a.data() + at * rows;
      for (uint64_t row = 0; row < rows; ++row) sums[row] += w[row] * x;
    }
    for (uint64_t row = 0; row < rows; ++row) {
      float value = op.alpha * sums[row];
      if (op.beta != 0)
        value += op.beta * Load(op.c, op.c_layout.type, first_c + op.c_layout.At(row, column));
      Store(op.d, op.d_layout.type, first_d + op.d_layout.At(row, column), value);
    }
  }
}

void RunMatmul(const Matmul& op) {
  if (DeviceState::Get().KernelFails()) return;
  const DeviceHeap::Access access;
  if (!OperandsExist(op)) return;
  for (int batch = 0; batch < op.d_layout.batch; ++batch) MultiplyOne(op, static_cast<size_t>(batch));
}

// Opaque handles are these types.
template <class T, class Handle>
T& From(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}

template <class T>
cublasStatus_t Set(T& field, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Refuse(const std::string& what, cublasStatus_t status) {
  Note(ReportKind::kApi, "cublasLt: {}", what);
  return status;
}

// Algorithms differ in what tests make of them. Their number is all that they hold.
constexpr uint64_t kAlgorithm = 0x57656972;
cublasLtMatmulAlgo_t Algorithm(int number) {
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = kAlgorithm;
  algorithm.data[1] = static_cast<uint64_t>(number);
  return algorithm;
}

}  // namespace
}  // namespace weir::emulator

using namespace weir::emulator;  // NOLINT: the functions below are C's

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const ApiCall api;
  if (api.Refusal() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<char*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new MatmulDescription{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete reinterpret_cast<MatmulDescription*>(description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  auto& description = From<MatmulDescription>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(description.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(description.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return Set(description.pointer_mode, value, bytes);
    default:
      return Refuse(fmt::format("attribute {} of a product is not emulated", static_cast<int>(attribute)),
                    CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading_dimension) {
  *layout =
      reinterpret_cast<cublasLtMatrixLayout_t>(new MatrixLayout{type, rows, columns, leading_dimension});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading_dimension) {
  if (size < sizeof(MatrixLayout)) return CUBLAS_STATUS_ALLOC_FAILED;
  new (layout) MatrixLayout{type, rows, columns, leading_dimension};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<MatrixLayout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  auto& layout = From<MatrixLayout>(handle);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: {
      uint32_t type = 0;
      const cublasStatus_t status = Set(type, value, bytes);
      if (status == CUBLAS_STATUS_SUCCESS) layout.type = static_cast<cudaDataType_t>(type);
      return status;
    }
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return Set(layout.order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(layout.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(layout.columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(layout.leading_dimension, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Set(layout.batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Set(layout.batch_stride, value, bytes);
    default:
      return Refuse(fmt::format("attribute {} of a layout is not emulated", static_cast<int>(attribute)),
                    CUBLAS_STATUS_NOT_SUPPORTED);
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new MatmulPreference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<MatmulPreference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    return Set(From<MatmulPreference>(handle).workspace_bytes, value, bytes);
  return CUBLAS_STATUS_SUCCESS;  // the others choose among algorithms
}

// ---- algorithms

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t,
                                              int requested, cublasLtMatmulHeuristicResult_t* results,
                                              int* returned) {
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = std::min(requested, kCublasLtAlgorithms);
  for (int i = 0; i < *returned; ++i) {
    results[i] = cublasLtMatmulHeuristicResult_t{};
    results[i].algo = Algorithm(i);
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].wavesCount = 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                        cudaDataType_t, cudaDataType_t, cudaDataType_t, int requested,
                                        int ids[], int* returned) {
  *returned = requested < 1 ? 0 : 1;
  if (requested >= 1) ids[0] = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t, cublasComputeType_t, cudaDataType_t, cudaDataType_t,
                                      cudaDataType_t, cudaDataType_t, cudaDataType_t, int id,
                                      cublasLtMatmulAlgo_t* algorithm) {
  if (id != 0) return CUBLAS_STATUS_INVALID_VALUE;
  *algorithm = Algorithm(0);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (algorithm->data[0] != kAlgorithm) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = cublasLtMatmulHeuristicResult_t{};
  result->algo = *algorithm;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t*,
                                                 cublasLtMatmulAlgoCapAttributes_t, void* buffer,
                                                 size_t bytes, size_t* written) {
  if (buffer != nullptr) std::memset(buffer, 0, bytes);
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t, const void*,
                                                    size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t*,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void* buffer,
                                                    size_t bytes, size_t* written) {
  if (buffer != nullptr) std::memset(buffer, 0, bytes);  // K is not split
  if (written != nullptr) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream_handle) {
  const ApiCall api;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (api.Refusal() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto& what = From<MatmulDescription>(description);
  if (const std::string why = NotEmulated(what); !why.empty())
    return Refuse("not emulated: " + why, CUBLAS_STATUS_NOT_SUPPORTED);
  if (algorithm != nullptr && algorithm->data[0] != kAlgorithm)
    return Refuse("an algorithm that was not asked for", CUBLAS_STATUS_INVALID_VALUE);
  const Matmul op{algorithm == nullptr ? 0 : static_cast<int>(algorithm->data[1]),
                  what,
                  From<MatrixLayout>(a_layout),
                  From<MatrixLayout>(b_layout),
                  From<MatrixLayout>(c_layout),
                  From<MatrixLayout>(d_layout),
                  *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta),
                  a,
                  b,
                  c,
                  d};
  if (const std::string why = Objection(op); !why.empty()) return Refuse(why, CUBLAS_STATUS_INVALID_VALUE);
  if (workspace_bytes > 0 &&
      !DeviceHeap::Get().CheckRange(workspace, workspace_bytes, "cublasLtMatmul's workspace"))
    return CUBLAS_STATUS_INVALID_VALUE;
  CUstream_st* const stream = Streams::Get().Find(stream_handle);
  if (stream == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const cudaError_t error = Streams::Get().Enqueue(*stream, [op] { RunMatmul(op); });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

namespace weir::emulator {

// What dlsym gives of the library, if it is installed.
void* CublasLtFunction(const char* name) {
  if (!Options().cublaslt) return nullptr;
  static const std::map<std::string_view, void*> functions = {
      {"cublasLtGetVersion", reinterpret_cast<void*>(cublasLtGetVersion)},
      {"cublasLtGetStatusName", reinterpret_cast<void*>(cublasLtGetStatusName)},
      {"cublasLtCreate", reinterpret_cast<void*>(cublasLtCreate)},
      {"cublasLtDestroy", reinterpret_cast<void*>(cublasLtDestroy)},
      {"cublasLtMatmulDescCreate", reinterpret_cast<void*>(cublasLtMatmulDescCreate)},
      {"cublasLtMatmulDescDestroy", reinterpret_cast<void*>(cublasLtMatmulDescDestroy)},
      {"cublasLtMatmulDescSetAttribute", reinterpret_cast<void*>(cublasLtMatmulDescSetAttribute)},
      {"cublasLtMatrixLayoutInit_internal", reinterpret_cast<void*>(cublasLtMatrixLayoutInit_internal)},
      {"cublasLtMatmulPreferenceCreate", reinterpret_cast<void*>(cublasLtMatmulPreferenceCreate)},
      {"cublasLtMatmulPreferenceDestroy", reinterpret_cast<void*>(cublasLtMatmulPreferenceDestroy)},
      {"cublasLtMatmulPreferenceSetAttribute", reinterpret_cast<void*>(cublasLtMatmulPreferenceSetAttribute)},
      {"cublasLtMatmulAlgoGetHeuristic", reinterpret_cast<void*>(cublasLtMatmulAlgoGetHeuristic)},
      {"cublasLtMatmulAlgoConfigGetAttribute", reinterpret_cast<void*>(cublasLtMatmulAlgoConfigGetAttribute)},
      {"cublasLtMatmul", reinterpret_cast<void*>(cublasLtMatmul)},
  };
  const auto at = functions.find(name);
  return at == functions.end() ? nullptr : at->second;
}

}  // namespace weir::emulator
