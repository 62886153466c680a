// Weights into panels of 32 outputs (layout: row_kernels.h), and single rows back out of them.
#include <algorithm>
#include <cstring>

#include "runtime/base/status_macros.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/pack.h"
#include "runtime/ops/matmul/row_kernels.h"

namespace weir {
namespace {

using matmul::kInt8StepBytes;
using matmul::kPanelOutputs;
using matmul::kStepBytes;

int64_t StepsOf(DType dtype, int64_t k) { return dtype == DType::kF32 ? k : (k + 1) / 2; }
int64_t StepBytes(DType dtype) { return dtype == DType::kI8 ? kInt8StepBytes : kStepBytes; }

// Element k of row n lies at this index.
template <class T>
int64_t PackedIndex(int64_t steps, int64_t n, int64_t k) {
  if constexpr (sizeof(T) == 1)
    return (n / kPanelOutputs * steps + k / 2) * kInt8StepBytes +
           matmul::Int8PairAt(static_cast<int>(n % kPanelOutputs)) + k % 2;
  constexpr int64_t kPerStep = sizeof(T) == sizeof(float) ? 1 : 2;
  return ((n / kPanelOutputs * steps + k / kPerStep) * kPanelOutputs + n % kPanelOutputs) * kPerStep +
         k % kPerStep;
}

// One panel per task; walks along k so that the panel is written in order. `packed` is zero where unused.
template <class T>
void PackPanels(const TensorView& weight, int64_t steps, std::byte* packed, WorkerPool& pool) {
  T* out = reinterpret_cast<T*>(packed);
  const int64_t n = weight.dim(0);
  const int64_t k = weight.dim(1);
  pool.ParallelFor((n + kPanelOutputs - 1) / kPanelOutputs, [&](int64_t panel, int) {
    const int64_t begin = panel * kPanelOutputs;
    const int64_t end = std::min<int64_t>(n, begin + kPanelOutputs);
    constexpr int64_t kStrip = 64;  // values of each row that are in the L1 cache together
    for (int64_t k0 = 0; k0 < k; k0 += kStrip) {
      const int64_t k1 = std::min(k, k0 + kStrip);
      for (int64_t row = begin; row < end; ++row) {
        const T* in = weight.row<T>(row);
        for (int64_t i = k0; i < k1; ++i) out[PackedIndex<T>(steps, row, i)] = in[i];
      }
    }
  });
}

}  // namespace

absl::StatusOr<DeviceBuffer> matmul::PackForCpu(const TensorView& weight, Device& device) {
  const int64_t steps = StepsOf(weight.dtype(), weight.dim(1));
  const int64_t panels = (weight.dim(0) + kPanelOutputs - 1) / kPanelOutputs;
  WEIR_ASSIGN_OR_RETURN(DeviceBuffer packed, device.Allocate(panels * steps * StepBytes(weight.dtype())));
  WorkerPool& pool = PoolOf(device.stream());
  if (weight.dtype() == DType::kF32)
    PackPanels<float>(weight, steps, packed.data(), pool);
  else if (weight.dtype() == DType::kBF16)
    PackPanels<BF16>(weight, steps, packed.data(), pool);
  else
    PackPanels<int8_t>(weight, steps, packed.data(), pool);
  return packed;
}

void PackedRowToF32(const PackedMatrix& matrix, int64_t row, float* out) {
  WEIR_CHECK(row >= 0 && row < matrix.n());
  const int64_t steps = StepsOf(matrix.dtype(), matrix.k());
  const int64_t step_bytes = StepBytes(matrix.dtype());
  const int output = static_cast<int>(row % kPanelOutputs);
  const std::byte* in = matrix.data() + row / kPanelOutputs * steps * step_bytes +
                        (matrix.dtype() == DType::kI8 ? matmul::Int8PairAt(output) : output * 4);
  if (matrix.dtype() == DType::kF32) {
    for (int64_t k = 0; k < matrix.k(); ++k, in += kStepBytes) std::memcpy(out + k, in, sizeof(float));
    return;
  }
  if (matrix.dtype() == DType::kI8) {
    const float scale = matrix.scales()[row];
    for (int64_t k = 0; k < matrix.k(); ++k)
      out[k] = scale * static_cast<float>(static_cast<int8_t>(in[k / 2 * kInt8StepBytes + k % 2]));
    return;
  }
  for (int64_t k = 0; k < matrix.k(); k += 2, in += kStepBytes) {
    BF16 pair[2];
    std::memcpy(pair, in, sizeof(pair));
    out[k] = pair[0].ToFloat();
    if (k + 1 < matrix.k()) out[k + 1] = pair[1].ToFloat();
  }
}

void GatherPackedRowsCpu(const GatherPackedRowsArgs& args, Stream& stream) {
  const int64_t num_tokens = args.y.dim(0);
  WEIR_CHECK(args.table != nullptr && args.y.rank() == 2 && args.y.dim(1) == args.table->k());
  WEIR_CHECK(args.index.num_elements() == num_tokens);
  const int32_t* index = args.index.data<int32_t>();
  constexpr int64_t kTokensPerTask = 16;
  PoolOf(stream).ParallelFor((num_tokens + kTokensPerTask - 1) / kTokensPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(num_tokens, (task + 1) * kTokensPerTask);
    for (int64_t token = task * kTokensPerTask; token < end; ++token)
      PackedRowToF32(*args.table, index[token], args.y.row<float>(token));
  });
}

}  // namespace weir
