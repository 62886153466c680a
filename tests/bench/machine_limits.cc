#include "tests/bench/machine_limits.h"

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

namespace weir::bench {
namespace {

constexpr int64_t kSize = 2048;
constexpr double kFlop = 2.0 * kSize * kSize * kSize;

#if defined(__x86_64__)
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
#endif

}  // namespace

double BestOfFive(FunctionRef<void()> call) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    call();
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

double ReadBandwidth(Device& device, const Timer& best) {
  using Lanes = uint64_t __attribute__((vector_size(16)));
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kParts = 64;
  constexpr int64_t kPart = kBytes / kParts / static_cast<int64_t>(sizeof(Lanes));
  // Four streams a worker: one alone leaves a fifth of the bandwidth unused.
  constexpr int64_t kStream = kPart / 4;
  DeviceBuffer buffer = *device.Allocate(kBytes);
  // Pages that nobody wrote would all be the same page of zeros.
  std::fill_n(reinterpret_cast<uint64_t*>(buffer.data()), kBytes / 8, uint64_t{0x0101010101010101});
  const double seconds = best([&] {
    PoolOf(device.stream()).ParallelFor(kParts, [&](int64_t part, int) {
      const Lanes* begin = reinterpret_cast<const Lanes*>(buffer.data()) + part * kPart;
      Lanes sums[16] = {};
      for (int64_t i = 0; i < kStream; i += 4)
#pragma GCC unroll 16
        for (int j = 0; j < 16; ++j) sums[j] |= begin[j / 4 * kStream + i + j % 4];
      for (const Lanes& sum : sums) __asm__ volatile("" : : "x"(sum));
    });
  });
  return static_cast<double>(kBytes) / seconds;
}

double MatmulPeak(Device& device) {
  std::vector<float> x(kSize * kSize, 0.5f), y(kSize * kSize);
  std::vector<BF16> w(kSize * kSize, BF16::FromFloat(0.25f));
  const PackedMatrix packed = *PackedMatrix::Pack(TensorView(w.data(), DType::kBF16, {kSize, kSize}), device);
  const MatmulArgs args{.x = TensorView(x.data(), DType::kF32, {kSize, kSize}),
                        .weight = &packed,
                        .y = TensorView(y.data(), DType::kF32, {kSize, kSize}),
                        .bias = {}};
  return kFlop / BestOfFive([&] { Launch(kMatmul, args, device.stream()); });
}

double DnnlSeconds([[maybe_unused]] DType dtype, [[maybe_unused]] int64_t m, [[maybe_unused]] int64_t k,
                   [[maybe_unused]] int64_t n, [[maybe_unused]] int threads,
                   [[maybe_unused]] const Timer& best) {
#if defined(WEIR_HAVE_DNNL)
  using dnnl::memory;
  omp_set_num_threads(threads);
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
  return best([&] {
    primitive.execute(stream,
                      {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, y_memory}});
    stream.wait();
  });
#else
  return 0;
#endif
}

double DnnlPeak(int threads) {
  const double seconds = DnnlSeconds(DType::kBF16, kSize, kSize, kSize, threads, BestOfFive);
  return seconds > 0 ? kFlop / seconds : 0;
}

double RegisterPeak([[maybe_unused]] Device& device, [[maybe_unused]] DType dtype,
                    [[maybe_unused]] const Timer& best) {
#if defined(__x86_64__)
  const bool bf16 = dtype == DType::kBF16;
  if (!MatmulIsaSupported(bf16 ? MatmulIsa::kAvx512Bf16 : MatmulIsa::kAvx512)) return 0;
  constexpr int64_t kRounds = 1 << 20;
  const int threads = PoolOf(device.stream()).num_threads();
  const auto spin = bf16 ? SpinDot : SpinFma;
  const double seconds =
      best([&] { PoolOf(device.stream()).ParallelFor(threads, [&](int64_t, int) { spin(kRounds); }); });
  return threads * static_cast<double>(kRounds) * 24 * (bf16 ? 64 : 32) / seconds;
#else
  return 0;
#endif
}

}  // namespace weir::bench
