#include <algorithm>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/rope/rope_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "runtime/device/cpu_device.h"
#include "runtime/ops/parallel.h"
#include "runtime/ops/rope/rope.h"
#include "runtime/ops/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {

// angle, cosine, sine: [half]. The angle is reduced to [-π, π] in double: at position 10⁶ an f32 angle is
// already 0.06 off.
void Rotations(int64_t position, const float* inv_freq, size_t half, float* angle, float* cosine,
               float* sine) {
  constexpr double kInverseTwoPi = 0.15915494309189533577;
  constexpr double kTwoPiHigh = 6.283185307179586;
  constexpr double kTwoPiLow = 2.4492935982947064e-16;
  for (size_t i = 0; i < half; ++i) {
    const double a = static_cast<double>(position) * static_cast<double>(inv_freq[i]);
    const double turns = std::floor(a * kInverseTwoPi + 0.5);
    angle[i] = static_cast<float>((a - turns * kTwoPiHigh) - turns * kTwoPiLow);
  }
  Map1(angle, cosine, half, [](V v) HWY_ATTR { return hn::Cos(F32(), v); });
  Map1(angle, sine, half, [](V v) HWY_ATTR { return hn::Sin(F32(), v); });
}

// One head: (a, b) ← (a cos - b sin, b cos + a sin), a and b: [half].
void RotateHead(const float* cosine, const float* sine, size_t half, float* a, float* b) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const V c = hn::LoadU(d, cosine + i);
    const V s = hn::LoadU(d, sine + i);
    const V va = hn::LoadU(d, a + i);
    const V vb = hn::LoadU(d, b + i);
    hn::StoreU(hn::NegMulAdd(vb, s, hn::Mul(va, c)), d, a + i);
    hn::StoreU(hn::MulAdd(va, s, hn::Mul(vb, c)), d, b + i);
  }
  for (; i < half; ++i) {
    const float va = a[i];
    a[i] = va * cosine[i] - b[i] * sine[i];
    b[i] = b[i] * cosine[i] + va * sine[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {

HWY_EXPORT(Rotations);
HWY_EXPORT(RotateHead);

void RopeCpu(const RopeArgs& args, Stream& stream) {
  const int64_t half = args.inv_freq.num_elements();
  const int64_t head_dim = 2 * half;
  WEIR_CHECK(args.num_heads > 0 && args.x.row_size() == head_dim * args.num_heads);
  const int32_t* cu = args.batch.cu_seqlens.data<int32_t>();
  const int64_t* positions = args.batch.positions.data<int64_t>();
  const auto rotations = HWY_DYNAMIC_DISPATCH(Rotations);
  const auto rotate_head = HWY_DYNAMIC_DISPATCH(RotateHead);
  const int64_t cost = head_dim * (8 + args.num_heads);
  ParallelRows(PoolOf(stream), args.batch.num_tokens, cost, [&](int64_t begin, int64_t end) {
    thread_local std::vector<float> scratch;
    if (scratch.size() < static_cast<size_t>(3 * half)) scratch.resize(static_cast<size_t>(3 * half));
    float* angle = scratch.data();
    float* cosine = angle + half;
    float* sine = cosine + half;
    // The run that holds token `begin`; empty runs are passed over.
    int64_t run = std::upper_bound(cu, cu + args.batch.num_seqs + 1, begin) - cu - 1;
    for (int64_t t = begin; t < end; ++t) {
      while (cu[run + 1] <= t) ++run;
      rotations(positions[run] + (t - cu[run]), args.inv_freq.data<float>(), static_cast<size_t>(half), angle,
                cosine, sine);
      float* x = args.x.row<float>(t);
      for (int h = 0; h < args.num_heads; ++h, x += head_dim)
        rotate_head(cosine, sine, static_cast<size_t>(half), x, x + half);
    }
  });
}

}  // namespace weir
#endif  // HWY_ONCE
