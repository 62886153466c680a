// Paged flash attention against its double-precision reference, and the laws its header promises bit for bit.
#include "runtime/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "runtime/ops/attention/flash_cpu.h"
#include "tests/support/kernel_parity.h"

namespace weir {
namespace {

struct Shape {
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

// Tokens [begin, begin + count) of sequence `seq`.
struct SeqRun {
  int seq;
  int64_t begin;
  int count;
};

// Sequences whose queries, keys and values are fixed by the seed, over a pool that starts as NaN and whose
// blocks are dealt out at random.
class Sequences {
 public:
  Sequences(Shape shape, DType dtype, std::vector<int64_t> lengths, double q_scale = 1.0, uint64_t seed = 1)
      : shape_(shape), lengths_(std::move(lengths)), random_(seed) {
    int64_t blocks = 3;
    for (int64_t length : lengths_) {
      blocks += (length + kKvBlockTokens - 1) / kKvBlockTokens;
      longest_ = std::max(longest_, length);
    }
    keys_ = std::make_unique<Guarded>(
        dtype, std::initializer_list<int64_t>{blocks, shape.num_kv_heads, shape.head_dim, kKvBlockTokens});
    values_ = std::make_unique<Guarded>(
        dtype, std::initializer_list<int64_t>{blocks, shape.num_kv_heads, kKvBlockTokens, shape.head_dim});
    std::vector<int32_t> order(static_cast<size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(random_.Int(0, static_cast<int>(i) - 1))]);
    for (int64_t length : lengths_) {
      std::vector<int32_t> table;
      for (int64_t at = 0; at < length; at += kKvBlockTokens) {
        table.push_back(order.back());
        order.pop_back();
      }
      tables_.push_back(std::move(table));
      q_.push_back(Normal(length * shape.num_heads * shape.head_dim, q_scale));
      k_.push_back(Normal(length * KvColumns(), 1.0));
      v_.push_back(Normal(length * KvColumns(), 1.0));
    }
  }

  int64_t KvColumns() const { return static_cast<int64_t>(shape_.num_kv_heads) * shape_.head_dim; }
  int64_t QColumns() const { return static_cast<int64_t>(shape_.num_heads) * shape_.head_dim; }
  std::vector<float>& k(int seq) { return k_[static_cast<size_t>(seq)]; }
  std::vector<float>& v(int seq) { return v_[static_cast<size_t>(seq)]; }
  std::vector<float>& q(int seq) { return q_[static_cast<size_t>(seq)]; }
  const std::vector<int32_t>& table(int seq) const { return tables_[static_cast<size_t>(seq)]; }
  Guarded& keys() { return *keys_; }
  Guarded& values() { return *values_; }
  void set_scratch_positions(int64_t positions) { scratch_positions_ = positions; }
  int64_t scratch_floats_touched() const { return scratch_touched_; }
  const std::vector<double>& expected() const { return expected_; }

  void Write(const std::vector<SeqRun>& runs, int threads = 1) {
    Batch batch(*this, runs);
    Guarded k(DType::kF32, {batch.tokens, KvColumns()}, 3), v(DType::kF32, {batch.tokens, KvColumns()});
    Gather(runs, k_, KvColumns(), k);
    Gather(runs, v_, KvColumns(), v);
    const auto device = CreateCpuDevice(threads);
    KvWriteCpu({batch.ragged, k, v, {*keys_, *values_}}, device->stream());
    EXPECT_TRUE(keys_->RedZonesIntact() && values_->RedZonesIntact());
  }
  void WriteAll() {
    for (int seq = 0; seq < static_cast<int>(lengths_.size()); ++seq) Write({Whole(seq)});
  }
  SeqRun Whole(int seq) const { return {seq, 0, static_cast<int>(lengths_[static_cast<size_t>(seq)])}; }

  // The output's bits, row after row; with `reference`, expected() too.
  std::vector<float> Attend(const std::vector<SeqRun>& runs, int threads = 1, bool reference = false) {
    Batch batch(*this, runs);
    const auto device = CreateCpuDevice(threads);
    Guarded q(DType::kF32, {batch.tokens, QColumns()}, 5), o(DType::kF32, {batch.tokens, QColumns()}, 7);
    Gather(runs, q_, QColumns(), q);
    const int64_t positions = scratch_positions_ > 0 ? scratch_positions_ : longest_;
    Guarded scratch(DType::kF32, {AttentionScratchElements(batch.tokens, positions, shape_.num_heads,
                                                           shape_.head_dim, threads)});
    AttentionArgs args{batch.ragged, q, {*keys_, *values_}, o, scratch};
    args.num_heads = shape_.num_heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    AttentionCpu(args, device->stream());
    EXPECT_TRUE(o.RedZonesIntact() && scratch.RedZonesIntact() && q.RedZonesIntact());
    if (reference) {
      expected_.resize(static_cast<size_t>(batch.tokens * QColumns()));
      AttentionReference(args, expected_.data());
    }
    scratch_touched_ = 0;
    for (int64_t i = 0; i < scratch.view().num_elements(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, scratch.view().data<float>() + i, sizeof(bits));
      if (bits != 0xffffffffu) ++scratch_touched_;
    }
    std::vector<float> rows;
    for (int64_t t = 0; t < batch.tokens; ++t)
      rows.insert(rows.end(), o.row<float>(t), o.row<float>(t) + QColumns());
    return rows;
  }

 private:
  struct Batch {
    Batch(const Sequences& owner, const std::vector<SeqRun>& runs)
        : cu(DType::kI32, {static_cast<int64_t>(runs.size()) + 1}),
          slots(DType::kI32, {static_cast<int64_t>(runs.size())}),
          positions(DType::kI64, {static_cast<int64_t>(runs.size())}),
          tables(DType::kI32, {static_cast<int64_t>(runs.size()),
                               (owner.longest_ + kKvBlockTokens - 1) / kKvBlockTokens + 1}) {
      ragged.num_seqs = static_cast<int>(runs.size());
      cu.row<int32_t>(0)[0] = 0;
      for (size_t i = 0; i < runs.size(); ++i) {
        const auto row = static_cast<int64_t>(i);
        tokens += runs[i].count;
        cu.row<int32_t>(row + 1)[0] = tokens;
        slots.row<int32_t>(row)[0] = runs[i].seq;
        positions.row<int64_t>(row)[0] = runs[i].begin;
        const auto& table = owner.tables_[static_cast<size_t>(runs[i].seq)];
        std::copy(table.begin(), table.end(), tables.row<int32_t>(row));
        ragged.max_seq_tokens = std::max(ragged.max_seq_tokens, runs[i].count);
      }
      ragged.num_tokens = tokens;
      ragged.cu_seqlens = cu;
      ragged.slots = slots;
      ragged.positions = positions;
      ragged.block_tables = tables;
    }
    Guarded cu, slots, positions, tables;
    RaggedBatch ragged;
    int tokens = 0;
  };

  std::vector<float> Normal(int64_t count, double scale) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(scale * random_.Normal());
    return values;
  }
  static void Gather(const std::vector<SeqRun>& runs, const std::vector<std::vector<float>>& from,
                     int64_t columns, const Guarded& to) {
    int64_t row = 0;
    for (const SeqRun& run : runs)
      for (int i = 0; i < run.count; ++i)
        std::copy_n(from[static_cast<size_t>(run.seq)].begin() + (run.begin + i) * columns, columns,
                    to.row<float>(row++));
  }

  const Shape shape_;
  const std::vector<int64_t> lengths_;
  Random random_;
  int64_t longest_ = 0;
  int64_t scratch_positions_ = 0;
  int64_t scratch_touched_ = 0;
  std::unique_ptr<Guarded> keys_, values_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> q_, k_, v_;
  std::vector<double> expected_;
};

bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, sizeof(float) * static_cast<size_t>(count)) == 0;
}
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}
double NmseOf(const std::vector<float>& actual, const std::vector<double>& expected) {
  return Nmse(std::vector<double>(actual.begin(), actual.end()), expected);
}
bool AllFinite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float v) { return std::isfinite(v); });
}

const DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
const Shape kShapes[] = {{1, 1, 64}, {9, 3, 64},  {8, 4, 20}, {4, 2, 8},  {2, 2, 80},
                         {8, 1, 33}, {2, 1, 128}, {6, 3, 72}, {14, 2, 1}, {3, 3, 112}};
// Every border of blocks (64) and pieces (256), decode and prefill mixed.
const std::vector<int64_t> kLengths = {70, 64, 65, 66, 256, 257, 258, 1001, 330, 513, 1, 2};
const std::vector<SeqRun> kMixedRuns = {{0, 0, 70},   {1, 63, 1},  {2, 64, 1},  {3, 65, 1},
                                        {4, 255, 1},  {5, 256, 1}, {6, 257, 1}, {7, 1000, 1},
                                        {8, 250, 80}, {9, 511, 2}, {10, 0, 1},  {11, 0, 2}};

class AttentionParity : public testing::TestWithParam<Shape> {};

TEST_P(AttentionParity, MatchesTheReferenceOnMixedRunsInEveryPoolType) {
  for (DType dtype : kDTypes) {
    Sequences s(GetParam(), dtype, kLengths);
    s.WriteAll();
    EXPECT_LT(NmseOf(s.Attend(kMixedRuns, 3, true), s.expected()), kNmseF32) << DTypeName(dtype);
  }
}

TEST_P(AttentionParity, SplitLawHoldsBitForBit) {
  for (DType dtype : kDTypes) {
    const int n = 270;
    const int64_t columns = static_cast<int64_t>(GetParam().num_heads) * GetParam().head_dim;
    Sequences whole(GetParam(), dtype, {n});
    whole.WriteAll();
    const std::vector<float> expected = whole.Attend({whole.Whole(0)});
    for (const std::vector<int>& split :
         {std::vector<int>{1, 269}, {37, 63, 170}, {64, 36, 162, 8}, {255, 1, 1, 13}}) {
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
    Sequences single(GetParam(), dtype, {n});
    for (int64_t t = 0; t < n; ++t) {
      single.Write({{0, t, 1}});
      ASSERT_TRUE(SameBits(single.Attend({{0, t, 1}}).data(), expected.data() + t * columns, columns))
          << DTypeName(dtype) << " decode at " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionParity, testing::ValuesIn(kShapes), [](const auto& param_info) {
  return "h" + std::to_string(param_info.param.num_heads) + "kv" +
         std::to_string(param_info.param.num_kv_heads) + "d" + std::to_string(param_info.param.head_dim);
});

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

TEST(Attention, EveryInstructionSetMatchesTheReference) {
  for (DType dtype : kDTypes) {
    for (Shape shape : {Shape{9, 3, 64}, Shape{8, 4, 20}}) {
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

TEST(Attention, BatchAndThreadsChangeNoBit) {
  for (DType dtype : kDTypes) {
    for (Shape shape : {Shape{9, 3, 64}, Shape{8, 4, 20}, Shape{14, 2, 1}}) {
      Sequences s(shape, dtype, kLengths);
      s.WriteAll();
      const std::vector<float> together = s.Attend(kMixedRuns, 1);
      for (int threads : {2, 3, 8})
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
  Sequences s({6, 2, 16}, DType::kF16, lengths);
  s.WriteAll();
  const std::vector<float> in_waves = s.Attend(runs, 2);
  s.set_scratch_positions(1 << 17);
  EXPECT_TRUE(SameBits(s.Attend(runs, 2), in_waves));
  EXPECT_TRUE(SameBits(s.Attend({runs[69]}, 1).data(), in_waves.data() + 69 * s.QColumns(), s.QColumns()));
}

TEST(Attention, ReadsThePoolWithoutChangingIt) {
  Sequences s({9, 3, 64}, DType::kBF16, kLengths);
  s.WriteAll();
  const auto keys = s.keys().Bytes(), values = s.values().Bytes();
  s.Attend(kMixedRuns, 2);
  EXPECT_TRUE(s.keys().Bytes() == keys && s.values().Bytes() == values);
}

TEST(Attention, NanInOneSequenceReachesNoOther) {
  for (DType dtype : kDTypes) {
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
  for (int64_t bad : {0, 63, 64, 100, 255, 256, 299}) {
    Sequences clean({3, 1, 40}, DType::kF16, {300}), dirty({3, 1, 40}, DType::kF16, {300});
    dirty.v(0)[static_cast<size_t>(bad * 40 + 7)] = std::numeric_limits<float>::quiet_NaN();
    dirty.k(0)[static_cast<size_t>(bad * 40 + 39)] = std::numeric_limits<float>::infinity();
    clean.WriteAll();
    dirty.WriteAll();
    const std::vector<float> a = clean.Attend({{0, 0, 300}}), b = dirty.Attend({{0, 0, 300}});
    EXPECT_TRUE(SameBits(a.data(), b.data(), bad * 120)) << bad;
    for (int64_t t = bad; t < 300; ++t)
      for (int head = 0; head < 3; ++head)
        EXPECT_TRUE(std::isnan(b[t * 120 + head * 40 + 7])) << bad << " " << t;
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
  for (DType dtype : kDTypes) {
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

TEST(Attention, ScratchGrowsLinearlyWithTheSequenceAndNotWithTheBatch) {
  const auto elements = [](int tokens, int64_t n) { return AttentionScratchElements(tokens, n, 9, 64, 2); };
  EXPECT_EQ(elements(1, 1 << 20), elements(8192, 1 << 20));
  const int64_t slope = elements(1, 1 << 16) - elements(1, 1 << 15);
  EXPECT_EQ(elements(1, 1 << 17) - elements(1, 1 << 16), 2 * slope);
  EXPECT_EQ(elements(1, 1 << 20) - elements(1, 1 << 19), 16 * slope);
  EXPECT_LT(slope, (1 << 15) * 9 / 2);  // floats: far below one per position and head
}

TEST(Attention, TouchedScratchIsConstantForPrefillAndLinearForDecode) {
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

TEST(Attention, ExponentialIsAccurateOverItsRange) {
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

// The bits that a pool of type T should hold for a value.
template <class T>
T Rounded(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return T::FromFloat(value);
  }
}

template <class T>
void ExpectOnlyWrittenPositionsChange(int threads) {
  const Shape shape{4, 2, 37};
  Sequences s(shape, DTypeOf<T>::kValue, {100, 600, 1});
  for (float special :
       {1e-6f, 3e-8f, 65504.0f, 65520.0f, 1e30f, -std::numeric_limits<float>::infinity(), 1e-41f})
    s.k(1)[static_cast<size_t>(70 * 74) + static_cast<size_t>(std::abs(std::fmod(special, 31.0f)))] = special;
  s.Write({{0, 0, 100}});
  std::vector<std::byte> keys = s.keys().Bytes(), values = s.values().Bytes();
  const std::vector<SeqRun> runs = {{1, 60, 300}, {2, 0, 1}};
  for (const SeqRun& run : runs) {
    for (int64_t p = run.begin; p < run.begin + run.count; ++p) {
      for (int64_t head = 0; head < 2; ++head) {
        const int64_t block = s.table(run.seq)[static_cast<size_t>(p / kKvBlockTokens)] * 2 + head;
        for (int64_t i = 0; i < 37; ++i) {
          const auto from = static_cast<size_t>((p * 2 + head) * 37 + i);
          const T k = Rounded<T>(s.k(run.seq)[from]), v = Rounded<T>(s.v(run.seq)[from]);
          const int64_t in_block = p % kKvBlockTokens;
          std::memcpy(&keys[sizeof(T) * static_cast<size_t>((block * 37 + i) * kKvBlockTokens + in_block)],
                      &k, sizeof(T));
          std::memcpy(&values[sizeof(T) * static_cast<size_t>((block * kKvBlockTokens + in_block) * 37 + i)],
                      &v, sizeof(T));
        }
      }
    }
  }
  s.Write(runs, threads);
  EXPECT_TRUE(s.keys().Bytes() == keys) << DTypeName(DTypeOf<T>::kValue);
  EXPECT_TRUE(s.values().Bytes() == values) << DTypeName(DTypeOf<T>::kValue);
}

TEST(KvWrite, ChangesTheWrittenPositionsOnlyAndRoundsToNearest) {
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
