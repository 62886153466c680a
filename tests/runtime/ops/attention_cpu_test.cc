// What is the CPU's own about paged attention: instruction sets, scratch, the exponential.
#include <cmath>
#include <limits>
#include <vector>

#include "hwy/targets.h"
#include "runtime/ops/attention/flash_cpu.h"
#include "tests/runtime/ops/attention_case.h"

namespace weir {
namespace {

// Runs f once per instruction set that this build and this machine have.
template <class F>
void ForEachTarget(F f) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    SCOPED_TRACE(hwy::TargetName(target));
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(AttentionCpu, EveryInstructionSetMatchesTheReference) {
  for (DType dtype : kKvTypes) {
    for (AttentionShape shape : {AttentionShape{9, 3, 64}, AttentionShape{8, 4, 20}}) {
      Sequences s(shape, dtype, kLengths);
      s.WriteAll();
      s.Attend(kMixedRuns, 1, true);
      ForEachTarget([&] {
        EXPECT_LT(NmseOf(s.Attend(kMixedRuns, 2), s.expected()), kNmseF32)
            << DTypeName(dtype) << " head_dim " << shape.head_dim;
      });
    }
  }
}

TEST(AttentionCpu, ScratchGrowsLinearlyWithTheSequenceAndNotWithTheBatch) {
  const auto elements = [](int tokens, int64_t n) { return AttentionScratchElements(tokens, n, 9, 64, 2); };
  EXPECT_EQ(elements(1, 1 << 20), elements(8192, 1 << 20));
  const int64_t slope = elements(1, 1 << 16) - elements(1, 1 << 15);
  EXPECT_EQ(elements(1, 1 << 17) - elements(1, 1 << 16), 2 * slope);
  EXPECT_EQ(elements(1, 1 << 20) - elements(1, 1 << 19), 16 * slope);
  EXPECT_LT(slope, (1 << 15) * 9 / 2);  // floats: far below one per position and head
}

TEST(AttentionCpu, TouchedScratchIsConstantForPrefillAndLinearForDecode) {
  std::vector<int64_t> prefill, decode;
  for (int64_t n : {1024, 2048, 4096, 8192}) {
    Sequences s({2, 1, 16}, DType::kF16, {n});
    s.WriteAll();
    s.Attend({s.Whole(0)});
    prefill.push_back(s.scratch_floats_touched());
    s.Attend({{0, n - 1, 1}});
    decode.push_back(s.scratch_floats_touched());
  }
  for (size_t i = 1; i < prefill.size(); ++i) EXPECT_EQ(prefill[i], prefill[0]);
  EXPECT_GT(prefill[0], 0);
  EXPECT_EQ(decode[2] - decode[1], 2 * (decode[1] - decode[0]));
  EXPECT_EQ(decode[3] - decode[2], 2 * (decode[2] - decode[1]));
  EXPECT_LT(decode[3], 8192);
}

TEST(AttentionCpu, ExponentialIsAccurateOverItsRange) {
  constexpr int64_t kCount = 1 << 19;
  std::vector<float> x(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[static_cast<size_t>(i)] = -125.0f * static_cast<float>(i) / kCount;
  ForEachTarget([&] {
    FlashExp2(x.data(), y.data(), kCount);
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]) * std::log(2.0));
      worst = std::max(worst, std::abs(y[i] - exact) / exact);
    }
    EXPECT_LT(worst, 2.5e-7);
    EXPECT_EQ(y[0], 1.0f);
    const float odd[16] = {-0.0f,
                           -125.5f,
                           -1e4f,
                           -3e38f,
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
    float result[16];
    FlashExp2(odd, result, 16);
    EXPECT_EQ(result[0], 1.0f);
    for (int i = 1; i < 5; ++i) EXPECT_EQ(result[i], 0x1p-125f);
    EXPECT_TRUE(std::isnan(result[5]));
  });
}

TEST(KvWriteCpu, EveryInstructionSetAndThreadCountRoundsToNearest) {
  ForEachTarget([] {
    for (int threads : {1, 3}) {
      ExpectOnlyWrittenPositionsChange<float>(threads);
      ExpectOnlyWrittenPositionsChange<F16>(threads);
      ExpectOnlyWrittenPositionsChange<BF16>(threads);
    }
  });
}

}  // namespace
}  // namespace weir
