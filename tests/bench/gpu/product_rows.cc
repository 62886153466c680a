// The projections of a model with 768 columns: the one that makes q, k, v or a Mamba's inputs, and the head.
#include <algorithm>
#include <memory>
#include <vector>

#include "fmt/format.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/matmul_cuda.h"
#include "runtime/ops/matmul/pack.h"
#include "tests/bench/gpu/fastest_product.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/gpu/product_work.h"

namespace weir::bench {
namespace {

constexpr double kPastTheCache = 256e6;  // bytes

// PackedMatrix takes weights from the host.
absl::StatusOr<PackedMatrix> RandomMatrix(const ProductSize& size, int seed, Device& device) {
  const auto count = static_cast<size_t>(size.n * size.k);
  uint32_t state = 12345u + static_cast<uint32_t>(seed);
  const auto next = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  if (size.weights == DType::kI8) {
    std::vector<int8_t> values(count);
    for (int8_t& value : values) value = static_cast<int8_t>(next() >> 16);
    const std::vector<float> scales(static_cast<size_t>(size.n), 0.01f);
    return PackedMatrix::PackInt8(TensorView(values.data(), DType::kI8, {size.n, size.k}), scales, device);
  }
  std::vector<BF16> values(count);
  for (BF16& value : values) value = BF16::FromFloat(static_cast<float>(next()) * 0x1p-23f - 1.0f);
  return PackedMatrix::Pack(TensorView(values.data(), DType::kBF16, {size.n, size.k}), device);
}

}  // namespace

GpuBench::Work ProductWork(GpuBench& bench, DeviceArrays& arrays, const ProductSize& size, ProductWay way) {
  if (way == ProductWay::kServed) {
    // Shared: a std::function must be copyable.
    const auto weights = std::make_shared<std::vector<PackedMatrix>>();
    for (int i = 0; i < size.matrices; ++i) {
      absl::StatusOr<PackedMatrix> matrix = RandomMatrix(size, i, bench.device());
      arrays.Fail(matrix.status());
      if (!matrix.ok()) return {};
      weights->push_back(*std::move(matrix));
    }
    const TensorView x = arrays.F32(size.m, size.k);
    const TensorView y = arrays.Zeros(DType::kF32, {size.m, size.n});
    return [&bench, weights, x, y] {
      for (const PackedMatrix& weight : *weights)
        Launch(kMatmul, {.x = x, .weight = &weight, .y = y, .bias = {}}, bench.device().stream());
    };
  }
  std::vector<TensorView> weights;
  for (int i = 0; i < size.matrices; ++i) weights.push_back(arrays.Values(DType::kBF16, {size.n, size.k}));
  CudaMatmul product;
  const TensorView x = arrays.F32(size.m, size.k);
  const TensorView y = arrays.Zeros(DType::kF32, {size.m, size.n});
  const TensorView scratch = arrays.Zeros(DType::kBF16, {matmul::kCudaScratchRows, size.k});
  if (!arrays.status().ok()) return {};
  product.x = x.data<float>();
  product.y = y.data<float>();
  product.x_stride = x.row_stride();
  product.y_stride = y.row_stride();
  product.m = size.m;
  product.n = size.n;
  product.k = size.k;
  product.w_row_bytes = product.x_row_bytes = size.k * 2;
  product.scratch = static_cast<unsigned char*>(scratch.raw());
  product.scratch_rows = matmul::kCudaScratchRows;
  return [&bench, weights, product] {
    const auto stream = static_cast<cudaStream_t>(bench.device().stream().native());
    for (const TensorView& weight : weights) {
      CudaMatmul one = product;
      one.w = static_cast<const unsigned char*>(weight.raw());
      LaunchCudaMatmulBf16(one, ChooseCudaMatmulForm(one.m, one.n), stream);
    }
  };
}

GpuBench::Work FastestProductWork(GpuBench& bench, const CublasLt& lt, DeviceArrays& arrays,
                                  const ProductSize& size) {
  absl::StatusOr<std::unique_ptr<FastestProduct>> made =
      FastestProduct::Create(lt, size.m, size.n, size.k, bench.device());
  arrays.Fail(made.status());
  if (!made.ok()) return {};
  const std::shared_ptr<FastestProduct> product = *std::move(made);
  std::vector<TensorView> weights;
  for (int i = 0; i < size.matrices; ++i) weights.push_back(arrays.Values(DType::kBF16, {size.n, size.k}));
  const TensorView x = arrays.Values(DType::kBF16, {size.m, size.k});
  const TensorView y = arrays.Zeros(DType::kF32, {size.m, size.n});
  return [&bench, product, weights, x, y] {
    for (const TensorView& weight : weights)
      bench.FailWork(product->Run(x, weight, y, bench.device().stream()));
  };
}

namespace {

// The floor of few rows is to move the integers, that of many the rate of bf16 products.
void Int8Row(GpuBench& bench, int64_t m, int64_t n, int64_t k) {
  const double weight_bytes = static_cast<double>(n * k) + 4.0 * static_cast<double>(n);
  const int matrices = bench.tiny() ? 2 : static_cast<int>(std::max(1.0, kPastTheCache / weight_bytes));
  const ProductSize size = {m, n, k, matrices, DType::kI8};
  bench.Measure({.name = "product, int8",
                 .size = fmt::format("m {}, n {}, k {}, {} matrices", m, n, k, matrices),
                 .counted = "W and its scales, x and y once; 2 m n k",
                 .bytes = matrices * (weight_bytes + 4.0 * static_cast<double>(m * (k + n))),
                 .operations = matrices * 2.0 * static_cast<double>(m * n * k)},
                [&](DeviceArrays& arrays) { return ProductWork(bench, arrays, size, ProductWay::kServed); });
}

}  // namespace

void ProductRows(GpuBench& bench) {
  bench.Section("Projections, bf16 and int8 weights", 0.1);
  const absl::StatusOr<CublasLt> lt = LoadCublasLt();
  const int64_t k = bench.Pick<int64_t>(768, 72);
  std::string how;
  for (const int64_t n : {bench.Pick<int64_t>(3072, 40), bench.Pick<int64_t>(50280, 97)}) {
    for (const int64_t m :
         bench.tiny() ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 64, 512, 4096}) {
      const auto weight_bytes = 2.0 * static_cast<double>(n * k);
      const int matrices = bench.tiny() ? 2 : static_cast<int>(std::max(1.0, kPastTheCache / weight_bytes));
      const ProductSize size = {m, n, k, matrices};
      GpuRow row = {.name = "product, as served",
                    .size = fmt::format("m {}, n {}, k {}, {} matrices", m, n, k, matrices),
                    .counted = "W, x and y once; 2 m n k",
                    .bytes = matrices * (weight_bytes + 4.0 * static_cast<double>(m * (k + n))),
                    .operations = matrices * 2.0 * static_cast<double>(m * n * k)};
      bench.Measure(row, [&](DeviceArrays& arrays) {
        GpuBench::Work work = ProductWork(bench, arrays, size, ProductWay::kServed);
        if (arrays.status().ok()) how = DescribeProducts(bench.device());
        return work;
      });
      row.name = "product, own kernels";
      bench.Measure(row,
                    [&](DeviceArrays& arrays) { return ProductWork(bench, arrays, size, ProductWay::kOwn); });
      Int8Row(bench, m, n, k);
      if (!lt.ok()) continue;
      row.name = "product, cuBLASLt";
      row.bytes -= matrices * 2.0 * static_cast<double>(m * k);  // x is bf16
      bench.Measure(row, [&](DeviceArrays& arrays) { return FastestProductWork(bench, *lt, arrays, size); });
    }
  }
  if (!how.empty()) bench.report().Text("\nAs served: " + how);
}

}  // namespace weir::bench
