// Sequences over a paged pool, on any column, for the tests of attention.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/ops/attention/attention.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {

struct AttentionShape {
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
  Sequences(AttentionShape shape, DType dtype, std::vector<int64_t> lengths, double q_scale = 1.0,
            uint64_t seed = 1)
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
  // Whether batches say how far their positions reach.
  void set_tell_positions(bool tell) { tell_positions_ = tell; }
  int64_t scratch_floats_touched() const { return scratch_touched_; }
  const std::vector<double>& expected() const { return expected_; }

  void Write(const std::vector<SeqRun>& runs, int threads = 1) {
    Batch batch(*this, runs);
    Guarded k(DType::kF32, {batch.tokens, KvColumns()}, 3), v(DType::kF32, {batch.tokens, KvColumns()});
    Gather(runs, k_, KvColumns(), k);
    Gather(runs, v_, KvColumns(), v);
    const auto device = CreateTestDevice(threads);
    RunKernel(kKvWrite, {batch.ragged, k, v, {*keys_, *values_}}, *device);
    EXPECT_TRUE(keys_->RedZonesIntact() && values_->RedZonesIntact());
  }
  void WriteAll() {
    for (int seq = 0; seq < static_cast<int>(lengths_.size()); ++seq) Write({Whole(seq)});
  }
  SeqRun Whole(int seq) const { return {seq, 0, static_cast<int>(lengths_[static_cast<size_t>(seq)])}; }

  // The output's bits, row after row; with `reference`, expected() too.
  std::vector<float> Attend(const std::vector<SeqRun>& runs, int threads = 1, bool reference = false) {
    Batch batch(*this, runs);
    const auto device = CreateTestDevice(threads);
    Guarded q(DType::kF32, {batch.tokens, QColumns()}, 5), o(DType::kF32, {batch.tokens, QColumns()}, 7);
    Gather(runs, q_, QColumns(), q);
    const int64_t positions = scratch_positions_ > 0 ? scratch_positions_ : longest_;
    Guarded scratch(DType::kF32, {AttentionScratchElements(batch.tokens, positions, shape_.num_heads,
                                                           shape_.head_dim, threads)});
    AttentionArgs args{batch.ragged, q, {*keys_, *values_}, o, scratch};
    args.num_heads = shape_.num_heads;
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    RunKernel(kAttention, args, *device);
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
        if (owner.tell_positions_)
          ragged.max_positions = std::max(ragged.max_positions, runs[i].begin + runs[i].count);
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

  const AttentionShape shape_;
  const std::vector<int64_t> lengths_;
  Random random_;
  int64_t longest_ = 0;
  bool tell_positions_ = true;
  int64_t scratch_positions_ = 0;
  int64_t scratch_touched_ = 0;
  std::unique_ptr<Guarded> keys_, values_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<std::vector<float>> q_, k_, v_;
  std::vector<double> expected_;
};

inline bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, sizeof(float) * static_cast<size_t>(count)) == 0;
}
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && SameBits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}
inline double NmseOf(const std::vector<float>& actual, const std::vector<double>& expected) {
  return Nmse(std::vector<double>(actual.begin(), actual.end()), expected);
}
inline bool AllFinite(const float* values, int64_t count) {
  return std::all_of(values, values + count, [](float v) { return std::isfinite(v); });
}

inline constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
// Every border of blocks (64) and pieces (256), decode and prefill mixed.
inline const std::vector<int64_t> kLengths = {70, 64, 65, 66, 256, 257, 258, 1001, 330, 513, 1, 2};
inline const std::vector<SeqRun> kMixedRuns = {{0, 0, 70},   {1, 63, 1},  {2, 64, 1},  {3, 65, 1},
                                               {4, 255, 1},  {5, 256, 1}, {6, 257, 1}, {7, 1000, 1},
                                               {8, 250, 80}, {9, 511, 2}, {10, 0, 1},  {11, 0, 2}};

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
  const AttentionShape shape{4, 2, 37};
  Sequences s(shape, DTypeOf<T>::kValue, {100, 600, 1});
  // Denormals, what is the last number of a type and what rounds to infinity, halfway cases of bf16 and f16
  // to both sides, and NaNs, one of which has all its bits where 16-bit types have none.
  const float specials[] = {1e-6f,
                            3e-8f,
                            1e-41f,
                            65504.0f,
                            65519.0f,
                            65520.0f,
                            1e30f,
                            std::numeric_limits<float>::max(),
                            -std::numeric_limits<float>::infinity(),
                            0x1.01p0f,
                            0x1.03p0f,
                            -0x1.01p0f,
                            0x1.002p0f,
                            0x1.006p0f,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0xff800001u)};
  std::copy(std::begin(specials), std::end(specials), &s.k(1)[70 * 74]);
  std::copy(std::begin(specials), std::end(specials), &s.v(1)[80 * 74]);
  s.Write({{0, 0, 100}});
  std::vector<std::byte> keys = s.keys().Bytes(), values = s.values().Bytes();
  const std::vector<SeqRun> runs = {{0, 70, 0}, {1, 60, 300}, {2, 0, 1}, {2, 0, 0}};
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

}  // namespace weir
