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

double Best(int calls, FunctionRef<void()> call) {
  double best = 1e30;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call();
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

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
#endif

}  // namespace

double ReadBandwidth(Device& device) {
  using Lanes = uint64_t __attribute__((vector_size(16)));
  constexpr int64_t kBytes = int64_t{1} << 30;
  constexpr int64_t kParts = 64;
  constexpr int64_t kPart = kBytes / kParts / static_cast<int64_t>(sizeof(Lanes));
  // Four streams a worker: one alone leaves a fifth of the bandwidth unused.
  constexpr int64_t kStream = kPart / 4;
  DeviceBuffer buffer = *device.Allocate(kBytes);
  // Pages that nobody wrote would all be the same page of zeros.
  std::fill_n(reinterpret_cast<uint64_t*>(buffer.data()), kBytes / 8, uint64_t{0x0101010101010101});
  const double seconds = Best(5, [&] {
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
  return kFlop / Best(5, [&] { Launch(kMatmul, args, device.stream()); });
}

double DnnlPeak([[maybe_unused]] int threads) {
#if defined(WEIR_HAVE_DNNL)
  using dnnl::memory;
  omp_set_num_threads(threads);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto type = memory::data_type::bf16;
  const memory::desc x({kSize, kSize}, type, memory::format_tag::ab);
  const memory::desc w_any({kSize, kSize}, type, memory::format_tag::any);
  const memory::desc w_rows({kSize, kSize}, type, memory::format_tag::ba);
  const memory::desc y({kSize, kSize}, memory::data_type::f32, memory::format_tag::ab);
  dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w_any, y), engine);
  memory x_memory(x, engine), y_memory(y, engine), rows(w_rows, engine), packed(desc.weights_desc(), engine);
  std::fill_n(static_cast<char*>(x_memory.get_data_handle()), x.get_size(), char{0x3c});
  std::fill_n(static_cast<char*>(rows.get_data_handle()), w_rows.get_size(), char{0x3c});
  dnnl::reorder(rows, packed).execute(stream, rows, packed);
  dnnl::matmul primitive(desc);
  return kFlop / Best(5, [&] {
           primitive.execute(
               stream, {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, y_memory}});
           stream.wait();
         });
#else
  return 0;
#endif
}

double RegisterPeak([[maybe_unused]] Device& device) {
#if defined(__x86_64__)
  if (!MatmulIsaSupported(MatmulIsa::kAvx512Bf16)) return 0;
  constexpr int64_t kRounds = 1 << 20;
  const int threads = PoolOf(device.stream()).num_threads();
  const double seconds =
      Best(5, [&] { PoolOf(device.stream()).ParallelFor(threads, [&](int64_t, int) { SpinDot(kRounds); }); });
  return threads * static_cast<double>(kRounds) * 24 * 64 / seconds;
#else
  return 0;
#endif
}

}  // namespace weir::bench
