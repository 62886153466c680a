// What the GPU allows, measured before what is held against it.
#include <string>

#include "fmt/format.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/gpu/product_work.h"

namespace weir::bench {
namespace {

void CopyBandwidth(GpuBench& bench) {
  const int64_t bytes = bench.Pick(int64_t{1} << 30, int64_t{1} << 16);
  const auto total = 2.0 * static_cast<double>(bytes);
  bench.Measure({.name = "copy within the device",
                 .size = fmt::format("{} MiB", bytes >> 20),
                 .counted = "read and write",
                 .bytes = total},
                [&](DeviceArrays& arrays) -> GpuBench::Work {
                  const TensorView from = arrays.Values(DType::kF32, {bytes / 4});
                  const TensorView to = arrays.Zeros(DType::kF32, {bytes / 4});
                  return [&bench, from, to, bytes] {
                    bench.device().stream().CopyOnDevice(to.raw(), from.raw(), bytes);
                  };
                });
  if (bench.report().rows().empty() || !bench.report().rows().back().skipped.empty()) return;
  bench.limits().bandwidth = total / bench.report().rows().back().seconds;
}

}  // namespace

// The rate of products is cuBLASLt's or, where there is none, Weir's own, and the table says which.
void LimitRows(GpuBench& bench) {
  bench.Section("Limits", 0.05, /*always=*/true);
  CopyBandwidth(bench);
  const int64_t side = bench.Pick<int64_t>(8192, 40);
  const GpuRow row = {.size = fmt::format("{0} x {0} x {0}", side),
                      .counted = "2 m n k; f32 sums",
                      .operations = 2.0 * static_cast<double>(side * side * side)};
  double rate = 0;
  const auto measure = [&](const std::string& name, FunctionRef<GpuBench::Work(DeviceArrays&)> setup) {
    GpuRow named = row;
    named.name = name;
    bench.Measure(named, setup);
    if (!bench.report().rows().empty() && bench.report().rows().back().name == name &&
        bench.report().rows().back().skipped.empty())
      rate = named.operations / bench.report().rows().back().seconds;
  };
  const ProductSize size = {side, side, side};
  const absl::StatusOr<CublasLt> lt = LoadCublasLt();
  if (lt.ok()) {
    measure("bf16 product, cuBLASLt " + lt->Version(),
            [&](DeviceArrays& arrays) { return FastestProductWork(bench, *lt, arrays, size); });
  } else {
    GpuRow missing = row;
    missing.name = "bf16 product, cuBLASLt";
    bench.Skip(missing, "not found");
  }
  bench.limits().matrix_rate = rate;
  measure("bf16 product, own kernels",
          [&](DeviceArrays& arrays) { return ProductWork(bench, arrays, size, ProductWay::kOwn); });
  if (!lt.ok()) bench.report().Text("\ncuBLASLt: " + std::string(lt.status().message()));
  if (bench.limits().matrix_rate > 0) return;
  bench.limits().matrix_rate = rate;
  bench.report().Text("\nWithout cuBLASLt, floors of operations are at the rate of Weir's own product.");
}

}  // namespace weir::bench
