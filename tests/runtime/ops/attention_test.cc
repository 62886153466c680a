// Paged flash attention against its double-precision reference, and the laws its header promises bit for bit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/ops/attention_case.h"

namespace weir {
namespace {

const AttentionShape kShapes[] = {{1, 1, 64}, {9, 3, 64},  {8, 4, 20}, {4, 2, 8},  {2, 2, 80},
                                  {8, 1, 33}, {2, 1, 128}, {6, 3, 72}, {14, 2, 1}, {3, 3, 112}};

class AttentionParity : public testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionParity, MatchesTheReferenceOnMixedRunsInEveryPoolType) {
  for (DType dtype : kKvTypes) {
    Sequences s(GetParam(), dtype, kLengths);
    s.WriteAll();
    EXPECT_LT(NmseOf(s.Attend(kMixedRuns, 3, true), s.expected()), kNmseF32) << DTypeName(dtype);
  }
}

// The pool's types; where kernels are slow, one of them, by `choice`.
std::vector<DType> TypesOfPool(int choice) {
  if (!SlowKernels()) return {std::begin(kKvTypes), std::end(kKvTypes)};
  return {kKvTypes[choice % std::size(kKvTypes)]};
}

TEST_P(AttentionParity, SplitLawHoldsBitForBit) {
  const std::vector<std::vector<int>> fast_splits = {
      {1, 269}, {37, 63, 170}, {64, 36, 162, 8}, {255, 1, 1, 13}};
  const std::vector<std::vector<int>> slow_splits = {{37, 63, 170}, {255, 1, 14}};
  for (DType dtype : TypesOfPool(GetParam().head_dim)) {
    const int n = 270;
    const int64_t columns = static_cast<int64_t>(GetParam().num_heads) * GetParam().head_dim;
    Sequences whole(GetParam(), dtype, {n});
    whole.WriteAll();
    const std::vector<float> expected = whole.Attend({whole.Whole(0)});
    for (const std::vector<int>& split : SlowKernels() ? slow_splits : fast_splits) {
      Sequences parts(GetParam(), dtype, {n});
      int64_t begin = 0;
      for (int count : split) {
        parts.Write({{0, begin, count}});
        const std::vector<float> o = parts.Attend({{0, begin, count}}, 2);
        EXPECT_TRUE(SameBits(o.data(), expected.data() + begin * columns, count * columns))
            << DTypeName(dtype) << " run of " << count << " at " << begin;
        begin += count;
      }
    }
    // One by one, the borders of blocks and pieces at least.
    Sequences single(GetParam(), dtype, {n});
    if (SlowKernels()) single.WriteAll();
    for (int64_t t = 0; t < n; ++t) {
      const int64_t from_border = std::min(t % 64, 63 - t % 64);
      if (SlowKernels() && from_border > 0 && t % 41 != 0) continue;
      if (!SlowKernels()) single.Write({{0, t, 1}});
      ASSERT_TRUE(SameBits(single.Attend({{0, t, 1}}).data(), expected.data() + t * columns, columns))
          << DTypeName(dtype) << " decode at " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionParity, testing::ValuesIn(kShapes), [](const auto& param_info) {
  return "h" + std::to_string(param_info.param.num_heads) + "kv" +
         std::to_string(param_info.param.num_kv_heads) + "d" + std::to_string(param_info.param.head_dim);
});

TEST(Attention, BatchAndThreadsChangeNoBit) {
  int choice = 0;
  for (AttentionShape shape :
       {AttentionShape{9, 3, 64}, AttentionShape{8, 4, 20}, AttentionShape{14, 2, 1}}) {
    for (DType dtype : TypesOfPool(choice++)) {
      Sequences s(shape, dtype, kLengths);
      s.WriteAll();
      const std::vector<float> together = s.Attend(kMixedRuns, 1);
      for (int threads : SlowKernels() ? std::vector<int>{2} : std::vector<int>{2, 3, 8})
        EXPECT_TRUE(SameBits(s.Attend(kMixedRuns, threads), together)) << threads << " threads";
      std::vector<SeqRun> reversed(kMixedRuns.rbegin(), kMixedRuns.rend());
      const std::vector<float> backwards = s.Attend(reversed, 2);
      int64_t token = 0;
      int64_t from_end = static_cast<int64_t>(together.size()) / s.QColumns();
      for (const SeqRun& run : kMixedRuns) {
        const int64_t count = run.count * s.QColumns();
        from_end -= run.count;
        const float* row = together.data() + token * s.QColumns();
        EXPECT_TRUE(SameBits(s.Attend({run}, 2).data(), row, count)) << "alone: sequence " << run.seq;
        EXPECT_TRUE(SameBits(backwards.data() + from_end * s.QColumns(), row, count)) << run.seq;
        token += run.count;
      }
    }
  }
}

TEST(Attention, MoreDecodesThanTheScratchHoldsGoInWavesWithTheSameBits) {
  std::vector<int64_t> lengths;
  std::vector<SeqRun> runs;
  for (int i = 0; i < 70; ++i) {
    lengths.push_back(190 + 5 * i);
    runs.push_back({i, 189 + 5 * i, 1});
  }
  lengths[33] = 2100;
  runs[33].begin = 2099;
  Sequences s({6, 2, 16}, DType::kF16, lengths);
  s.WriteAll();
  const std::vector<float> in_waves = s.Attend(runs, 2);
  s.set_scratch_positions(1 << 17);
  EXPECT_TRUE(SameBits(s.Attend(runs, 2), in_waves));
  EXPECT_TRUE(SameBits(s.Attend({runs[69]}, 1).data(), in_waves.data() + 69 * s.QColumns(), s.QColumns()));
}

// Batches of a fixed size are filled up with empty runs, and tables are as wide as the longest sequence may
// get.
TEST(Attention, EmptyRunsAndTheBoundOnPositionsChangeNoBit) {
  for (DType dtype : kKvTypes) {
    Sequences s({4, 2, 24}, dtype, kLengths);
    s.WriteAll();
    const std::vector<float> expected = s.Attend(kMixedRuns, 2);
    std::vector<SeqRun> padded = {{3, 17, 0}, {8, 0, 0}};
    for (const SeqRun& run : kMixedRuns) {
      padded.push_back(run);
      for (int i = 0; i < 6; ++i) padded.push_back({i, 5, 0});
    }
    EXPECT_GT(padded.size(), 64u);
    EXPECT_TRUE(SameBits(s.Attend(padded, 2), expected));
    s.set_tell_positions(false);
    EXPECT_TRUE(SameBits(s.Attend(padded, 2), expected));
    EXPECT_TRUE(SameBits(s.Attend(kMixedRuns, 2), expected));
  }
}

TEST(Attention, HeadsBeyondATilesRowsAndTheWidestHead) {
  for (const AttentionShape shape : {AttentionShape{18, 1, 16}, AttentionShape{70, 1, 8},
                                     AttentionShape{2, 1, 200}, AttentionShape{1, 1, 256}}) {
    for (DType dtype : kKvTypes) {
      Sequences s(shape, dtype, {70, 258});
      s.WriteAll();
      const std::vector<SeqRun> runs = {{0, 58, 12}, {1, 257, 1}, {1, 255, 3}};
      const std::vector<float> o = s.Attend(runs, 2, true);
      EXPECT_LT(NmseOf(o, s.expected()), kNmseF32) << DTypeName(dtype) << " head_dim " << shape.head_dim;
      EXPECT_TRUE(SameBits(o.data() + 12 * s.QColumns(), o.data() + 15 * s.QColumns(), s.QColumns()));
    }
  }
}

// Queries and values far from 1: a pool type with few exponents must not show.
TEST(Attention, LargeAndSmallMagnitudesKeepTheirAccuracy) {
  for (DType dtype : kKvTypes) {
    for (const double scale : {1e-6, 1e6}) {
      Sequences s({4, 2, 24}, dtype, {150}, scale);
      for (float& k : s.k(0)) k = static_cast<float>(k * 0.5 / scale);
      if (dtype == DType::kF16 && scale < 1) continue;  // such keys are beyond f16
      s.WriteAll();
      EXPECT_LT(NmseOf(s.Attend({{0, 0, 150}}, 2, true), s.expected()), kNmseF32)
          << DTypeName(dtype) << scale;
    }
  }
}

TEST(Attention, ReadsThePoolWithoutChangingIt) {
  Sequences s({9, 3, 64}, DType::kBF16, kLengths);
  s.WriteAll();
  const auto keys = s.keys().Bytes(), values = s.values().Bytes();
  s.Attend(kMixedRuns, 2);
  EXPECT_TRUE(s.keys().Bytes() == keys && s.values().Bytes() == values);
}

TEST(Attention, NanInOneSequenceReachesNoOther) {
  for (DType dtype : TypesOfPool(2)) {
    Sequences clean({9, 3, 64}, dtype, kLengths), dirty({9, 3, 64}, dtype, kLengths);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fill(dirty.k(8).begin(), dirty.k(8).end(), nan);
    std::fill(dirty.v(0).begin(), dirty.v(0).end(), nan);
    std::fill(dirty.q(7).begin(), dirty.q(7).end(), nan);
    clean.WriteAll();
    dirty.WriteAll();
    const std::vector<float> a = clean.Attend(kMixedRuns, 2), b = dirty.Attend(kMixedRuns, 2);
    int64_t at = 0;
    for (const SeqRun& run : kMixedRuns) {
      const int64_t count = run.count * clean.QColumns();
      if (run.seq == 8 || run.seq == 0 || run.seq == 7) {
        EXPECT_TRUE(std::all_of(&b[at], &b[at] + count, [](float v) { return std::isnan(v); })) << run.seq;
      } else {
        EXPECT_TRUE(SameBits(&a[at], &b[at], count)) << run.seq;
      }
      at += count;
    }
  }
}

TEST(Attention, NanAtOnePositionReachesLaterOnesOnly) {
  const std::vector<int64_t> positions = SlowKernels() ? std::vector<int64_t>{63, 100, 256}
                                                       : std::vector<int64_t>{0, 63, 64, 100, 255, 256, 299};
  for (int64_t bad : positions) {
    for (DType dtype : TypesOfPool(static_cast<int>(bad))) {
      Sequences clean({3, 1, 40}, dtype, {300}), dirty({3, 1, 40}, dtype, {300});
      dirty.v(0)[static_cast<size_t>(bad * 40 + 7)] = std::numeric_limits<float>::quiet_NaN();
      dirty.k(0)[static_cast<size_t>(bad * 40 + 39)] = std::numeric_limits<float>::infinity();
      clean.WriteAll();
      dirty.WriteAll();
      const std::vector<float> a = clean.Attend({{0, 0, 300}}), b = dirty.Attend({{0, 0, 300}});
      EXPECT_TRUE(SameBits(a.data(), b.data(), bad * 120)) << DTypeName(dtype) << bad;
      for (int64_t t = bad; t < 300; ++t)
        for (int head = 0; head < 3; ++head)
          EXPECT_TRUE(std::isnan(b[t * 120 + head * 40 + 7])) << DTypeName(dtype) << bad << " " << t;
    }
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorBlur) {
  // Scores reach 1e4, where one step of f32 is 1e-3: weights are right to about that.
  Sequences s({4, 2, 64}, DType::kF32, {200, 600}, 4000.0);
  s.WriteAll();
  const std::vector<float> o = s.Attend({{0, 0, 200}, {1, 599, 1}}, 2, true);
  EXPECT_TRUE(AllFinite(o.data(), static_cast<int64_t>(o.size())));
  EXPECT_LT(NmseOf(o, s.expected()), 1e-5);
}

TEST(Attention, FirstPositionReturnsItsValueExactly) {
  for (DType dtype : kKvTypes) {
    Sequences s({4, 4, 24}, dtype, {5}, 50.0);
    s.WriteAll();
    const std::vector<float> prefill = s.Attend({{0, 0, 5}}), decode = s.Attend({{0, 0, 1}});
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t i = 0; i < 24; ++i) {
        float v = s.v(0)[static_cast<size_t>(head * 24 + i)];
        if (dtype == DType::kF16) v = F16::FromFloat(v).ToFloat();
        if (dtype == DType::kBF16) v = BF16::FromFloat(v).ToFloat();
        EXPECT_EQ(prefill[static_cast<size_t>(head * 24 + i)], v);
        EXPECT_EQ(decode[static_cast<size_t>(head * 24 + i)], v);
      }
    }
  }
}

TEST(KvWrite, ChangesTheWrittenPositionsOnlyAndRoundsToNearest) {
  ExpectOnlyWrittenPositionsChange<float>(1);
  ExpectOnlyWrittenPositionsChange<F16>(1);
  ExpectOnlyWrittenPositionsChange<BF16>(1);
}

}  // namespace
}  // namespace weir
