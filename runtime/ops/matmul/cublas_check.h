// Whether a product of cuBLASLt keeps the batch law, tried out on the device it is for.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/ops/matmul/cublas_plan.h"

namespace weir::matmul {

// Memory of the check for weights [n, k]; what x and w hold is overwritten with random numbers.
struct CublasCheckMemory {
  void* x = nullptr;  // bf16 [rows, k]
  void* w = nullptr;  // bf16 [n, k]
  int64_t n = 0, k = 0;
  int64_t rows = 0;  // the most that a product will have
};

// Rows of x of one product of weights with n outputs: as many as scratch memory holds, unless the check would
// need more than 256 MiB for their outputs, twice.
int64_t MaxCublasRows(int64_t n);
// Fewer than that, where a device is slow; 0 goes back. Not while a model loads or runs.
void SetMaxCublasRowsForTest(int64_t rows);

// Compares each row of y, bit for bit, in products of 1, 2, 3, … `rows` rows, once written and once added to
// an old y, with the same row of one product of `rows`: so at other places and among other rows. An error is
// the device's, or its lack of memory.
absl::StatusOr<bool> KeepsRows(const CublasPlan& plan, const CublasCheckMemory& memory, Device& device);

}  // namespace weir::matmul
