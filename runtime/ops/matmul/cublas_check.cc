#include "runtime/ops/matmul/cublas_check.h"

#include <algorithm>

#include "runtime/base/status_macros.h"
#include "runtime/ops/matmul/cublas_check_cuda.h"
#include "runtime/ops/matmul/pack.h"

namespace weir::matmul {
namespace {

constexpr int64_t kOutputBytes = int64_t{128} << 20;
constexpr int64_t kLeastRows = 64;
constexpr int64_t kProductsPerLook = 32;  // between two looks at the result

int64_t rows_for_test = 0;

// The first row of a product of m: never the one at which it lay in the product of all rows.
int64_t FirstRow(int64_t m, int64_t rows) { return m == rows ? 0 : 1 + m * 29 % (rows - m); }

}  // namespace

int64_t MaxCublasRows(int64_t n) {
  if (rows_for_test > 0) return rows_for_test;
  const int64_t rows = kOutputBytes / (n * static_cast<int64_t>(sizeof(float))) / kLeastRows * kLeastRows;
  return std::clamp(rows, kLeastRows, kCudaScratchRows);
}

void SetMaxCublasRowsForTest(int64_t rows) { rows_for_test = rows; }

absl::StatusOr<bool> KeepsRows(const CublasPlan& plan, const CublasCheckMemory& memory, Device& device) {
  const int64_t n = memory.n;
  const int64_t row_bytes = memory.k * 2;
  WEIR_ASSIGN_OR_RETURN(const DeviceBuffer outputs,
                        device.Allocate(2 * memory.rows * n * static_cast<int64_t>(sizeof(float))));
  WEIR_ASSIGN_OR_RETURN(const DeviceBuffer differs, device.Allocate(sizeof(int32_t)));
  float* const expected = reinterpret_cast<float*>(outputs.data());
  CudaRowCheck check{expected, expected + memory.rows * n, reinterpret_cast<int*>(differs.data()), 0, n, 0,
                     false};
  const auto native = static_cast<cudaStream_t>(device.stream().native());
  const auto run = [&](int64_t first, int64_t m, float* y, bool accumulate) {
    return plan.Run(static_cast<std::byte*>(memory.x) + first * row_bytes, memory.w, y, n, m, accumulate,
                    native) == CUBLAS_STATUS_SUCCESS;
  };
  LaunchCudaFillBf16(memory.x, memory.rows * memory.k, 1, native);
  LaunchCudaFillBf16(memory.w, n * memory.k, 2, native);
  bool taken = run(0, memory.rows, expected, false);
  int32_t found = 0;
  for (check.m = 1; taken && found == 0 && check.m <= memory.rows; ++check.m) {
    check.first_row = FirstRow(check.m, memory.rows);
    check.accumulate = true;
    LaunchCudaOldOutputs(check, native);
    taken = taken && run(check.first_row, check.m, check.y, true);
    LaunchCudaCompareRows(check, native);
    check.accumulate = false;
    taken = taken && run(check.first_row, check.m, check.y, false);
    LaunchCudaCompareRows(check, native);
    if (check.m % kProductsPerLook != 0 && check.m != memory.rows) continue;
    device.stream().CopyToHost(&found, differs.data(), sizeof(found));
    WEIR_RETURN_IF_ERROR(device.stream().Synchronize());
  }
  WEIR_RETURN_IF_ERROR(device.stream().Synchronize());
  return taken && found == 0;
}

}  // namespace weir::matmul
