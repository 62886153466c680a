// The kernels pick their instruction set at run time, so a machine only ever runs its widest. Here each one
// that the machine has is forced in turn, on odd sizes, against the references.
#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "runtime/ops/discretize/discretize.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/rope/rope.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/ops/skip/skip.h"
#include "runtime/ops/swiglu/swiglu.h"
#include "tests/support/recurrence_case.h"
#include "tests/support/scan_case.h"

namespace weir {
namespace {

class CpuTargets : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if ((hwy::SupportedTargets() & GetParam()) == 0)
      GTEST_SKIP() << "this machine has no " << hwy::TargetName(GetParam());
    hwy::GetChosenTarget().Update(GetParam());
  }
  void TearDown() override { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }

  std::unique_ptr<Device> device_ = CreateCpuDevice(2);
};

INSTANTIATE_TEST_SUITE_P(Targets, CpuTargets, testing::Values(HWY_SSE4, HWY_AVX2, HWY_AVX3),
                         [](const auto& param) { return hwy::TargetName(param.param); });

std::vector<double> Sized(const Guarded& like) {
  return std::vector<double>(static_cast<size_t>(like.view().num_elements()));
}

TEST_P(CpuTargets, ElementwiseAndNorm) {
  for (const int width : {1, 3, 7, 21, 100}) {
    Random random(1);
    Guarded x(DType::kF32, {5, width}, 3), gate(DType::kF32, {5, width}), y(DType::kF32, {5, width}, 1);
    Guarded weight(DType::kF32, {width});
    random.FillNormal(x, 3.0);
    random.FillNormal(gate, 3.0);
    random.FillNormal(weight);
    std::vector<double> expected = Sized(y);
    RmsNormReference({x, weight, gate, y, 1e-5f}, expected.data());
    RmsNormCpu({x, weight, gate, y, 1e-5f}, device_->stream());
    EXPECT_LT(Nmse(y, expected), kNmseF32);
    SwiGluReference({gate, x, y}, expected.data());
    SwiGluCpu({gate, x, y}, device_->stream());
    EXPECT_LT(Nmse(y, expected), kNmseF32);
    EluPlusOneReference({x, y}, expected.data());
    EluPlusOneCpu({x, y}, device_->stream());
    EXPECT_LT(Nmse(y, expected), kNmseF32);
    EXPECT_TRUE(y.RedZonesIntact());
    RmsNormArgs gate_first = {x, weight, gate, y, 1e-5f};
    gate_first.gate_first = true;
    RmsNormReference(gate_first, expected.data());
    RmsNormCpu(gate_first, device_->stream());
    EXPECT_LT(Nmse(y, expected), kNmseF32);
  }
}

TEST_P(CpuTargets, DiscretizeSkipAndFavor) {
  for (const int heads : {1, 3, 17}) {
    constexpr int kHeadDim = 11;
    Random random(7);
    Guarded dt(DType::kF32, {5, heads}, 1), bias(DType::kF32, {heads}), a(DType::kF32, {heads});
    Guarded x(DType::kF32, {5, heads * kHeadDim}, 2), v(DType::kF32, {5, heads * kHeadDim}, 1);
    Guarded log_decay(DType::kF32, {5, heads}, 1);
    random.FillNormal(dt, 3.0);
    random.FillNormal(bias);
    random.FillUniform(a, -8.0, -0.1);
    random.FillNormal(x);
    const DiscretizeArgs discretize = {dt, bias, a, x, log_decay, v};
    std::vector<double> decays = Sized(log_decay), expected = Sized(v);
    DiscretizeReference(discretize, decays.data(), expected.data());
    DiscretizeCpu(discretize, device_->stream());
    EXPECT_LT(Nmse(log_decay, decays), kNmseF32);
    EXPECT_LT(Nmse(v, expected), kNmseF32);

    const SkipArgs skip = {x, bias, v};
    expected = v.ToDoubles();
    SkipReference(skip, expected.data());
    SkipCpu(skip, device_->stream());
    EXPECT_LT(Nmse(v, expected), kNmseF32);

    const Ragged ragged({{2, 7, 1}, {3, 0, 0}});
    Guarded features(DType::kF32, {kHeadDim, heads * 5}), y(DType::kF32, {5, heads * heads * 5}, 3);
    Guarded maximum(DType::kF32, {2, heads});
    random.FillNormal(features);
    random.FillNormal(maximum);
    FavorArgs favor = {ragged.batch(), x, features, heads, y, maximum, log_decay};
    std::vector<double> phi = Sized(y), running = maximum.ToDoubles();
    FavorReference(favor, phi.data(), running.data(), decays.data());
    FavorCpu(favor, device_->stream());
    EXPECT_LT(Nmse(y, phi), kNmseF32);
    EXPECT_LT(Nmse(maximum, running), kNmseF32);
    EXPECT_LT(Nmse(log_decay, decays), kNmseF32);
    EXPECT_TRUE(y.RedZonesIntact() && v.RedZonesIntact() && log_decay.RedZonesIntact());
  }
}

TEST_P(CpuTargets, RopeAndShortConv) {
  const Ragged ragged({{3, 1'000'000, 1}, {40, 5, 0}});
  for (const int half : {1, 9, 32}) {
    Guarded x(DType::kF32, {43, 2 * half}, 1), inv_freq(DType::kF32, {half});
    Random random(2);
    random.FillNormal(x);
    for (int i = 0; i < half; ++i) inv_freq.row<float>(0)[i] = static_cast<float>(std::pow(1e4, -i / 40.0));
    std::vector<double> expected = Sized(x);
    RopeReference({ragged.batch(), x, inv_freq, 1}, expected.data());
    RopeCpu({ragged.batch(), x, inv_freq, 1}, device_->stream());
    EXPECT_LT(Nmse(x, expected), kNmseF32);

    const int channels = 2 * half;
    Guarded y(DType::kF32, {43, channels}), window(DType::kF32, {2, 3, channels});
    Guarded weight(DType::kF32, {4, channels}), bias(DType::kF32, {channels});
    random.FillNormal(window);
    random.FillNormal(weight);
    random.FillNormal(bias);
    std::vector<double> expected_window = window.ToDoubles();
    const ShortConvArgs args{ragged.batch(), x, weight, bias, window, y, true};
    ShortConvReference(args, expected.data(), expected_window.data());
    ShortConvCpu(args, device_->stream());
    EXPECT_LT(Nmse(y, expected), kNmseF32);
    EXPECT_EQ(window.ToDoubles(), expected_window);
  }
}

TEST_P(CpuTargets, LinearRecurrenceInBothWays) {
  for (const RecurrenceShape& shape :
       {RecurrenceShape{1, 1, 5, 3, true}, RecurrenceShape{2, 2, 64, 64, true},
        RecurrenceShape{2, 1, 20, 37, true}, RecurrenceShape{3, 1, 16, 50, false},
        RecurrenceShape{4, 1, 16, 24, true}, RecurrenceShape{7, 1, 16, 24, true},
        RecurrenceShape{4, 4, 20, 37, true, Decay::kPerToken, 2},
        RecurrenceShape{2, 2, 64, 64, false, Decay::kConstant},
        RecurrenceShape{2, 1, 20, 37, true, Decay::kRare}}) {
    for (const WholeChunks way : {WholeChunks::kSteps, WholeChunks::kProducts}) {
      const Ragged ragged({{1, 0, 2}, {130, 1000, 0}, {3, 61, 1}});
      RecurrenceState state(shape, 3);
      state.Randomize(3);
      const RecurrenceTokens tokens(shape, ragged.num_tokens(), 4);
      const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
      std::vector<double> s = state.S(), z = state.Z(), o = Sized(tokens.o);
      LinearRecurrenceReference(args, s.data(), z.data(), o.data());
      LinearRecurrenceCpuWith(args, way, device_->stream());
      EXPECT_LT(Nmse(tokens.o, o), kNmseF32);
      EXPECT_LT(Nmse(state.S(), s), kNmseF32);
      EXPECT_TRUE(tokens.o.RedZonesIntact() && state.RedZonesIntact());
    }
  }
}

// Against the reference, and whole against token by token: the two ways must agree in every bit.
TEST_P(CpuTargets, SelectiveScan) {
  const Ragged ragged({{1, 0, 2}, {130, 1000, 0}, {3, 61, 1}});
  for (const auto& [channels, state_dim] : {std::pair(1, 16), {37, 5}, {64, 16}, {150, 16}, {70, 200}}) {
    ScanCase scan(channels, state_dim, ragged.num_tokens(), 3, 5);
    ScanCase steps(channels, state_dim, ragged.num_tokens(), 3, 5);
    std::vector<double> state = scan.state.ToDoubles(), y = scan.SizedLikeY();
    SelectiveScanReference(scan.Args(ragged), state.data(), y.data());
    SelectiveScanCpu(scan.Args(ragged), device_->stream());
    EXPECT_LT(Nmse(scan.y, y), kNmseF32);
    EXPECT_LT(Nmse(scan.state, state), kNmseF32);
    for (int t = 0; t < ragged.num_tokens(); ++t) {
      const Ragged one({{1, t, t < 1 ? 2 : t < 131 ? 0 : 1}});
      SelectiveScanCpu(steps.Args(one, t), device_->stream());
    }
    EXPECT_EQ(steps.y.Bytes(), scan.y.Bytes());
    EXPECT_EQ(steps.state.Bytes(), scan.state.Bytes());
    EXPECT_TRUE(scan.RedZonesIntact() && steps.RedZonesIntact());
  }
}

}  // namespace
}  // namespace weir
