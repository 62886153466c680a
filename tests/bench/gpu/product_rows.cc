// The projections of a model with 768 columns: the one that makes q, k, v or a Mamba's inputs, and the head.
#include <algorithm>
#include <memory>
#include <vector>

#include "fmt/format.h"
#include "runtime/ops/matmul/matmul.h"
#include "tests/bench/gpu/cublaslt.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/gpu/product_work.h"

namespace weir::bench {
namespace {

constexpr double kPastTheCache = 256e6;  // bytes

// PackedMatrix takes weights from the host: rows of one pattern.
absl::StatusOr<PackedMatrix> RandomMatrix(int64_t n, int64_t k, int seed, Device& device) {
  std::vector<BF16> values(static_cast<size_t>(n * k));
  uint32_t state = 12345u + static_cast<uint32_t>(seed);
  for (BF16& value : values) {
    state = state * 1664525u + 1013904223u;
    value = BF16::FromFloat(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return PackedMatrix::Pack(TensorView(values.data(), DType::kBF16, {n, k}), device);
}

}  // namespace

GpuBench::Work OwnProductWork(GpuBench& bench, DeviceArrays& arrays, int64_t m, int64_t n, int64_t k,
                              int matrices) {
  // Shared: a std::function must be copyable.
  const auto weights = std::make_shared<std::vector<PackedMatrix>>();
  for (int i = 0; i < matrices; ++i) {
    absl::StatusOr<PackedMatrix> matrix = RandomMatrix(n, k, i, bench.device());
    if (!matrix.ok()) {
      arrays.Fail(matrix.status());
      return {};
    }
    weights->push_back(*std::move(matrix));
  }
  const TensorView x = arrays.F32(m, k);
  const TensorView y = arrays.Zeros(DType::kF32, {m, n});
  return [&bench, weights, x, y] {
    for (const PackedMatrix& weight : *weights)
      Launch(kMatmul, {.x = x, .weight = &weight, .y = y, .bias = {}}, bench.device().stream());
  };
}

GpuBench::Work CublasLtWork(GpuBench& bench, const CublasLt& library, DeviceArrays& arrays, int64_t m,
                            int64_t n, int64_t k, int matrices) {
  absl::StatusOr<std::unique_ptr<CublasLt::Product>> prepared = library.Prepare(m, n, k);
  if (!prepared.ok()) {
    arrays.Fail(prepared.status());
    return {};
  }
  const std::shared_ptr<CublasLt::Product> product = *std::move(prepared);
  std::vector<TensorView> weights;
  for (int i = 0; i < matrices; ++i) weights.push_back(arrays.Values(DType::kBF16, {n, k}));
  const TensorView x = arrays.Values(DType::kBF16, {m, k});
  const TensorView y = arrays.Zeros(DType::kF32, {m, n});
  const TensorView workspace = arrays.Zeros(DType::kF32, {CublasLt::kWorkspaceBytes / 4});
  return [&bench, product, weights, x, y, workspace] {
    const auto stream = static_cast<cudaStream_t>(bench.device().stream().native());
    for (const TensorView& weight : weights) bench.FailWork(product->Run(x, weight, y, workspace, stream));
  };
}

void ProductRows(GpuBench& bench) {
  bench.Section("Projections, bf16 weights", 0.1);
  const absl::StatusOr<std::unique_ptr<CublasLt>> library = CublasLt::Open(bench.options().cublaslt);
  const int64_t k = bench.Pick<int64_t>(768, 72);
  for (const int64_t n : {bench.Pick<int64_t>(3072, 40), bench.Pick<int64_t>(50280, 97)}) {
    for (const int64_t m :
         bench.tiny() ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 64, 512, 4096}) {
      const auto weight_bytes = 2.0 * static_cast<double>(n * k);
      const int matrices = bench.tiny() ? 2 : static_cast<int>(std::max(1.0, kPastTheCache / weight_bytes));
      GpuRow row = {.name = "product, Weir",
                    .size = fmt::format("m {}, n {}, k {}, {} matrices", m, n, k, matrices),
                    .counted = "W, x and y once; 2 m n k",
                    .bytes = matrices * (weight_bytes + 4.0 * static_cast<double>(m * (k + n))),
                    .operations = matrices * 2.0 * static_cast<double>(m * n * k)};
      bench.Measure(row,
                    [&](DeviceArrays& arrays) { return OwnProductWork(bench, arrays, m, n, k, matrices); });
      if (!library.ok()) continue;
      row.name = "product, cuBLASLt";
      row.bytes -= matrices * 2.0 * static_cast<double>(m * k);  // x is bf16
      bench.Measure(row, [&](DeviceArrays& arrays) {
        return CublasLtWork(bench, **library, arrays, m, n, k, matrices);
      });
    }
  }
}

}  // namespace weir::bench
