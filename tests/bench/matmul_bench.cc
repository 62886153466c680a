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

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(WEIR_HAVE_DNNL)
#include <omp.h>

#include "dnnl.hpp"
#endif

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

// Bytes a second that all workers read together, best of 5 passes over 1 GiB. Four streams a worker: one
// alone leaves a fifth of the bandwidth unused.
double ReadBandwidth(Device& device) {
  using Lanes = uint64_t __attribute__((vector_size(16)));
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kParts = 64;
  constexpr int64_t kStream = 48 * 1024 / sizeof(Lanes);
  constexpr int64_t kPart = kBytes / kParts / static_cast<int64_t>(sizeof(Lanes));
  DeviceBuffer buffer = *device.Allocate(kBytes);
  const double seconds = Best(
      1, [] {},
      [&] {
        PoolOf(device.stream()).ParallelFor(kParts, [&](int64_t part, int) {
          const Lanes* begin = reinterpret_cast<const Lanes*>(buffer.data()) + part * kPart;
          Lanes sums[16] = {};
          for (const Lanes* p = begin; p + 4 * kStream <= begin + kPart; p += 4 * kStream)
            for (int64_t i = 0; i < kStream; i += 4)
#pragma GCC unroll 16
              for (int j = 0; j < 16; ++j) sums[j] |= p[j / 4 * kStream + i + j % 4];
          for (const Lanes& sum : sums) __asm__ volatile("" : : "x"(sum));
        });
      });
  constexpr int64_t kRead =
      kPart / (4 * kStream) * (4 * kStream) * kParts * static_cast<int64_t>(sizeof(Lanes));
  return static_cast<double>(kRead) / seconds;
}

#if defined(__x86_64__)
// Floating-point operations a second of all workers, operands in registers.
__attribute__((target("avx512f,avx512bf16"))) void SpinDot(int64_t rounds) {
  __m512 sums[24];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  for (__m512& sum : sums) __asm__ volatile("" : : "v"(sum));
}

__attribute__((target("avx512f"))) void SpinFma(int64_t rounds) {
  __m512 sums[24];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1);
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a));
#pragma GCC unroll 24
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
  }
  for (__m512& sum : sums) __asm__ volatile("" : : "v"(sum));
}

double RegisterPeak(Device& device, void (*spin)(int64_t), double flop_per_instruction) {
  constexpr int64_t kRounds = 1 << 18;
  const int threads = PoolOf(device.stream()).num_threads();
  const double seconds = Best(
      0.3, [] {},
      [&] { PoolOf(device.stream()).ParallelFor(threads, [&](int64_t, int) { spin(kRounds); }); });
  return threads * static_cast<double>(kRounds) * 24 * flop_per_instruction / seconds;
}
#endif

struct Peaks {
  double bandwidth = 0;
  double bf16 = 0;
  double f32 = 0;
};

#if defined(WEIR_HAVE_DNNL)
double DnnlSeconds(DType dtype, int64_t m, int64_t n, int64_t k, double budget, FunctionRef<void()> before) {
  using dnnl::memory;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto type = dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc x({m, k}, type, memory::format_tag::ab);
  const memory::desc w_any({k, n}, type, memory::format_tag::any);
  const memory::desc w_rows({k, n}, type, memory::format_tag::ba);
  const memory::desc y({m, n}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w_any, y), engine);
  memory x_memory(x, engine), y_memory(y, engine), rows(w_rows, engine), packed(desc.weights_desc(), engine);
  std::fill_n(static_cast<char*>(x_memory.get_data_handle()), x.get_size(), char{0x3c});
  std::fill_n(static_cast<char*>(rows.get_data_handle()), w_rows.get_size(), char{0x3c});
  dnnl::reorder(rows, packed).execute(stream, rows, packed);
  dnnl::matmul primitive(desc);
  return Best(budget, before, [&] {
    primitive.execute(stream,
                      {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, y_memory}});
    stream.wait();
  });
}
#endif

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
  const PackedMatrix packed = *PackedMatrix::Pack(weight, device);
  const MatmulArgs args{.x = TensorView(x.data(), DType::kF32, {shape.m, shape.k}),
                        .weight = &packed,
                        .y = TensorView(y.data(), DType::kF32, {shape.m, shape.n}),
                        .bias = {}};
  const auto before = [&] {
    if (shape.evict) EvictCaches(device);
  };
  const double seconds = Best(budget, before, [&] { Launch(kMatmul, args, device.stream()); });
  const double flop = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
  const double peak = shape.dtype == DType::kBF16 ? peaks.bf16 : peaks.f32;
  std::string line = fmt::format("{:5} {:5} {:5}->{:<6} {:6} {:9.1f} {:8.1f} {:6.2f}", DTypeName(shape.dtype),
                                 shape.m, shape.k, shape.n, shape.evict ? "memory" : "cached", seconds * 1e6,
                                 flop / seconds * 1e-9, peak > 0 ? flop / seconds / peak : 0);
  const double rate = static_cast<double>(packed.bytes()) / seconds;
  line += shape.m == 1 ? fmt::format(" {:7.1f} {:6.2f}", rate * 1e-9, rate / peaks.bandwidth)
                       : fmt::format(" {:>7} {:>6}", "", "");
#if defined(WEIR_HAVE_DNNL)
  const double dnnl = DnnlSeconds(shape.dtype, shape.m, shape.n, shape.k, budget, before);
  line += fmt::format(" {:9.1f} {:8.1f} {:7.2f}", dnnl * 1e6, flop / dnnl * 1e-9, dnnl / seconds);
#endif
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace

int Main(double budget, int threads, const std::string& filter) {
  if (threads == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
#if defined(WEIR_HAVE_DNNL)
  omp_set_num_threads(threads);
#endif
  const std::unique_ptr<Device> device = CreateCpuDevice(threads);
  Peaks peaks;
  peaks.bandwidth = ReadBandwidth(*device);
#if defined(__x86_64__)
  if (MatmulIsaSupported(MatmulIsa::kAvx512)) peaks.f32 = RegisterPeak(*device, SpinFma, 32);
  if (MatmulIsaSupported(MatmulIsa::kAvx512Bf16)) peaks.bf16 = RegisterPeak(*device, SpinDot, 64);
#endif
  fmt::print("{} threads, {} time, {}; read {:.1f} GB/s; in registers bf16 {:.0f}, f32 {:.0f} GFLOP/s\n",
             threads, threads == 1 ? "CPU" : "wall", MatmulIsaName(CurrentMatmulIsa()),
             peaks.bandwidth * 1e-9, peaks.bf16 * 1e-9, peaks.f32 * 1e-9);
  fmt::print("dtype     m     k->n      weight        us  GFLOP/s of_peak    GB/s of_read");
#if defined(WEIR_HAVE_DNNL)
  fmt::print("   dnnl_us  GFLOP/s speedup");
#endif
  fmt::print("\n");
  for (DType dtype : {DType::kBF16, DType::kF32}) {
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
