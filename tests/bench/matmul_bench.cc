// Matmul on this machine against its limits and against oneDNN: a table with one line per shape. Every figure
// is the best of many calls: wall time, or with one thread its CPU time, which a busy neighbour does not
// lengthen. oneDNN gets activations that are bf16 already and a primitive built for the exact M; our time
// includes the conversion.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/matmul/isa.h"
#include "runtime/ops/matmul/matmul.h"
#include "runtime/ops/matmul/quantize.h"
#include "tests/bench/machine_limits.h"

namespace weir {
namespace {

clockid_t clock_id = CLOCK_MONOTONIC;

double Now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Best seconds of one call, over at least `budget` seconds and 5 calls. `before` runs untimed ahead of each.
double Best(double budget, FunctionRef<void()> before, FunctionRef<void()> call) {
  double best = 1e30;
  const double start = Now(CLOCK_MONOTONIC);
  for (int i = 0; i < 5 || Now(CLOCK_MONOTONIC) - start < budget; ++i) {
    before();
    const double begin = Now(clock_id);
    call();
    best = std::min(best, Now(clock_id) - begin);
  }
  return best;
}

struct Peaks {
  double bandwidth = 0;
  double bf16 = 0;
  double f32 = 0;
};

// Every worker reads more than the caches hold, so that weights come from memory.
void EvictCaches(Device& device) {
  static std::vector<uint64_t> big(size_t{96} << 17, 1);
  const int threads = PoolOf(device.stream()).num_threads();
  PoolOf(device.stream()).ParallelFor(threads, [](int64_t, int) {
    uint64_t sum = 0;
    for (size_t i = 0; i < big.size(); i += 8) sum += big[i];
    __asm__ volatile("" : : "r"(sum));
  });
}

struct Shape {
  DType dtype;
  int64_t m, k, n;
  bool evict = false;
};

void RunShape(Device& device, const Shape& shape, const Peaks& peaks, double budget,
              const std::string& filter) {
  if (fmt::format("{} {} {} {}", DTypeName(shape.dtype), shape.m, shape.k, shape.n).find(filter) ==
      std::string::npos)
    return;
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(static_cast<size_t>(shape.m * shape.k)), y(static_cast<size_t>(shape.m * shape.n));
  std::vector<float> w(static_cast<size_t>(shape.n * shape.k));
  for (float& value : x) value = uniform(random);
  for (float& value : w) value = uniform(random);
  std::vector<BF16> w16;
  TensorView weight(w.data(), DType::kF32, {shape.n, shape.k});
  if (shape.dtype == DType::kBF16) {
    for (float value : w) w16.push_back(BF16::FromFloat(value));
    weight = TensorView(w16.data(), DType::kBF16, {shape.n, shape.k});
  }
  std::vector<int8_t> quantized(shape.dtype == DType::kI8 ? w.size() : 0);
  std::vector<float> scales(static_cast<size_t>(shape.n));
  if (shape.dtype == DType::kI8) QuantizeRows(weight, quantized, scales);
  const PackedMatrix packed =
      shape.dtype == DType::kI8
          ? *PackedMatrix::PackInt8(TensorView(quantized.data(), DType::kI8, {shape.n, shape.k}), scales,
                                    device)
          : *PackedMatrix::Pack(weight, device);
  const MatmulArgs args{.x = TensorView(x.data(), DType::kF32, {shape.m, shape.k}),
                        .weight = &packed,
                        .y = TensorView(y.data(), DType::kF32, {shape.m, shape.n}),
                        .bias = {}};
  const auto before = [&] {
    if (shape.evict) EvictCaches(device);
  };
  const double seconds = Best(budget, before, [&] { Launch(kMatmul, args, device.stream()); });
  const double flop = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  const double peak = shape.dtype == DType::kF32 ? peaks.f32 : peaks.bf16;
  std::string line = fmt::format("{:5} {:5} {:5}->{:<6} {:6} {:9.1f} {:8.1f} {:6.2f}", DTypeName(shape.dtype),
                                 shape.m, shape.k, shape.n, shape.evict ? "memory" : "cached", seconds * 1e6,
                                 flop / seconds * 1e-9, peak > 0 ? flop / seconds / peak : 0);
  const double rate = static_cast<double>(packed.bytes()) / seconds;
  line += shape.m == 1 ? fmt::format(" {:7.1f} {:6.2f}", rate * 1e-9, rate / peaks.bandwidth)
                       : fmt::format(" {:>7} {:>6}", "", "");
  const int threads = PoolOf(device.stream()).num_threads();
  const double dnnl =  // oneDNN has no product of bf16 and int8
      shape.dtype == DType::kI8
          ? 0
          : bench::DnnlSeconds(shape.dtype, shape.m, shape.k, shape.n, threads,
                               [&](FunctionRef<void()> call) { return Best(budget, before, call); });
  if (dnnl > 0)
    line += fmt::format(" {:9.1f} {:8.1f} {:7.2f}", dnnl * 1e6, flop / dnnl * 1e-9, dnnl / seconds);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int Main(double budget, int threads, const std::string& filter) {
  if (threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
  const std::unique_ptr<Device> device = CreateCpuDevice(threads);
  Peaks peaks;
  const auto best = [](FunctionRef<void()> call) {
    return Best(
        0.5, [] {}, call);
  };
  peaks.bandwidth = bench::ReadBandwidth(*device, best);
  peaks.f32 = bench::RegisterPeak(*device, DType::kF32, best);
  peaks.bf16 = bench::RegisterPeak(*device, DType::kBF16, best);
  fmt::print("{} threads, {} time, {}; read {:.1f} GB/s; in registers bf16 {:.0f}, f32 {:.0f} GFLOP/s\n",
             threads, threads == 1 ? "CPU" : "wall", MatmulIsaName(CurrentMatmulIsa()),
             peaks.bandwidth * 1e-9, peaks.bf16 * 1e-9, peaks.f32 * 1e-9);
  fmt::print("dtype     m     k->n      weight        us  GFLOP/s of_peak    GB/s of_read{}\n",
             bench::kHasDnnl ? "   dnnl_us  GFLOP/s speedup" : "");
  for (DType dtype : {DType::kBF16, DType::kI8, DType::kF32}) {
    RunShape(*device, {dtype, 1, 768, 50280, true}, peaks, budget, filter);
    RunShape(*device, {dtype, 1, 768, 3072, true}, peaks, budget, filter);
    for (const auto& [k, n] : {std::pair<int64_t, int64_t>{768, 3072}, {576, 1536}, {2048, 2048}})
      for (int64_t m : {1, 4, 16, 64, 512}) RunShape(*device, {dtype, m, k, n}, peaks, budget, filter);
    RunShape(*device, {dtype, 2048, 2048, 2048}, peaks, budget, filter);
    for (int64_t m : {4, 8, 14, 16, 64})
      RunShape(*device, {dtype, m, 768, 50280, true}, peaks, budget, filter);
  }
  return 0;
}

}  // namespace weir

// weir_matmul_bench [seconds per figure] [threads] [only shapes whose "dtype m k n" contains this]
int main(int argc, char** argv) {
  return weir::Main(argc > 1 ? std::atof(argv[1]) : 0.5, argc > 2 ? std::atoi(argv[2]) : 2,
                    argc > 3 ? argv[3] : "");
}
