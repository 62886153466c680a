// The laws of the linear recurrence, for every column of its kernel and both of the CPU's ways of doing whole
// chunks.
#include "runtime/ops/linear_recurrence/linear_recurrence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/device/cpu_device.h"
#include "runtime/ops/linear_recurrence/recurrence_head.h"
#include "tests/runtime/ops/linear_recurrence_laws.h"
#include "tests/support/recurrence_case.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

// Query heads per state from 1 to 9.
const RecurrenceShape kShapes[] = {
    {1, 1, 1, 1, true},     {1, 1, 4, 4, false},   {3, 3, 7, 5, true},     {2, 2, 33, 17, true},
    {9, 9, 64, 64, true},   {6, 2, 48, 64, true},  {8, 2, 16, 31, false},  {5, 1, 20, 100, true},
    {2, 1, 64, 129, true},  {9, 1, 12, 40, false}, {3, 3, 128, 128, true}, {2, 1, 300, 33, true},
    {1, 1, 1024, 20, true},
};

// One level that decays, with and without z, by head and by token; heads that share q and k as Mamba-2's
// groups do; and the two levels of Performer, which are rescaled now and then.
const RecurrenceShape kDecayed[] = {
    {1, 1, 1, 1, true, Decay::kPerToken},          {3, 3, 7, 5, false, Decay::kConstant},
    {4, 4, 16, 31, true, Decay::kConstant},        {6, 6, 33, 17, false, Decay::kPerToken, 2},
    {24, 24, 128, 64, false, Decay::kPerToken, 1}, {6, 2, 48, 64, true, Decay::kPerToken},
    {10, 2, 20, 100, false, Decay::kPerToken, 1},  {8, 4, 12, 40, true, Decay::kRare, 2},
    {3, 3, 128, 64, true, Decay::kRare},           {5, 1, 9, 33, true, Decay::kRare},
};

std::vector<RecurrenceShape> AllShapes() {
  std::vector<RecurrenceShape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), std::begin(kDecayed), std::end(kDecayed));
  return shapes;
}

// The device of a form; num_threads is of the CPU's pool.
std::unique_ptr<Device> DeviceFor(RecurrenceForm form, int num_threads) {
  return form == RecurrenceForm::kKernel ? CreateTestDevice(num_threads) : CreateCpuDevice(num_threads);
}

void RunForm(RecurrenceForm form, const LinearRecurrenceArgs& args, Device& device) {
  if (form == RecurrenceForm::kKernel)
    RunKernel(kLinearRecurrence, args, device);
  else
    LinearRecurrenceCpuWith(args, WholeChunks::kProducts, device.stream());
}

void RunCase(const RecurrenceShape& shape, const std::vector<RunSpec>& runs, const RecurrenceTokens& tokens,
             const RecurrenceState& state, RecurrenceForm form, Device& device, int first = 0) {
  const Ragged ragged(runs);
  RunForm(form, MakeArgs(shape, ragged, tokens, state, first), device);
}

// What Nmse may be: a column may compute whole chunks less exactly than single tokens.
double Limit(const Device& device) {
  return device.backend() == Backend::kCpu ? kNmseF32 : std::max(kNmseF32, kCudaChunkNmse);
}

struct Truth {
  std::vector<double> s, z, o;
};

Truth RunReference(const LinearRecurrenceArgs& args, const RecurrenceState& state) {
  Truth truth{state.S(), state.Z(), std::vector<double>(static_cast<size_t>(args.o.num_elements()))};
  LinearRecurrenceReference(args, truth.s.data(), truth.z.data(), truth.o.data());
  return truth;
}

INSTANTIATE_TEST_SUITE_P(Kernel, LinearRecurrenceLaws, testing::Values(RecurrenceForm::kKernel),
                         [](const auto&) { return "Column"; });

TEST_P(LinearRecurrenceLaws, TruthAtOddSizesOverAChunkBorderAndAFold) {
  const auto device = DeviceFor(GetParam(), 2);
  for (const RecurrenceShape& shape : AllShapes()) {
    // Runs that end before, on and after chunk borders, one over a fold, a single token on a fold, and slots
    // out of order with unused ones between.
    const std::vector<RunSpec> runs = {{1, 0, 5},     {130, 40, 1}, {64, 128, 4},
                                       {70, 1000, 6}, {1, 2048, 0}, {3, 61, 2}};
    const Ragged ragged(runs);
    RecurrenceState state(shape, 8);
    state.Randomize(1);
    const RecurrenceTokens tokens(shape, ragged.num_tokens(), 2);
    const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
    const Truth truth = RunReference(args, state);
    RunForm(GetParam(), args, *device);
    EXPECT_LT(Nmse(tokens.o, truth.o), Limit(*device)) << shape.state_dim << "x" << shape.head_dim;
    EXPECT_LT(Nmse(state.S(), truth.s), Limit(*device));
    if (shape.normalised) {
      EXPECT_LT(Nmse(state.Z(), truth.z), Limit(*device));
    }
    EXPECT_TRUE(tokens.o.RedZonesIntact());
    EXPECT_TRUE(state.RedZonesIntact());
  }
}

TEST_P(LinearRecurrenceLaws, FoldEmptiesTheInnerLevel) {
  const auto device = DeviceFor(GetParam(), 1);
  const RecurrenceShape shape{1, 1, 3, 5, true};
  RecurrenceState state(shape, 1);
  const RecurrenceTokens tokens(shape, 1100, 3);
  RunCase(shape, {{1024, 0, 0}}, tokens, state, GetParam(), *device);
  const std::vector<double> before = state.S();
  for (const double x : state.s_outer.ToDoubles()) EXPECT_EQ(x, 0.0);
  RunCase(shape, {{1, 1024, 0}}, tokens, state, GetParam(), *device, 1024);
  EXPECT_LT(MaxRelativeError(state.s_outer.ToDoubles(), before), 1e-7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(state.z_inner.row<float>(0)[i], tokens.k.row<float>(1024)[i]);
    for (int j = 0; j < 5; ++j)
      EXPECT_NEAR(state.s_inner.row<float>(0)[i * 5 + j],
                  tokens.k.row<float>(1024)[i] * tokens.v.row<float>(1024)[j], 1e-6);
  }
}

// The chunks, counted from position 0, that lie whole in one of `pieces`.
std::set<int64_t> WholeChunksOf(int64_t position, const std::vector<int>& pieces) {
  std::set<int64_t> chunks;
  for (const int piece : pieces) {
    for (int64_t chunk = (position + kChunkTokens - 1) / kChunkTokens;
         (chunk + 1) * kChunkTokens <= position + piece; ++chunk)
      chunks.insert(chunk);
    position += piece;
  }
  return chunks;
}

// Runs `pieces` one after another from `position` on; outputs and state within 1e-4 of the one-piece run.
void ExpectSplitChangesNothing(RecurrenceForm form, int64_t position, const std::vector<int>& pieces,
                               const RecurrenceShape& shape) {
  const auto device = DeviceFor(form, 2);
  const int total = std::accumulate(pieces.begin(), pieces.end(), 0);
  RecurrenceState whole(shape, 2);
  RecurrenceState split(shape, 2);
  whole.Randomize(4);
  split.Randomize(4);
  const RecurrenceTokens whole_tokens(shape, total, 5);
  const RecurrenceTokens split_tokens(shape, total, 5);
  RunCase(shape, {{total, position, 1}}, whole_tokens, whole, form, *device);
  int done = 0;
  for (const int piece : pieces) {
    RunCase(shape, {{piece, position + done, 1}}, split_tokens, split, form, *device, done);
    done += piece;
  }
  EXPECT_LT(MaxRelativeError(split_tokens.o.ToDoubles(), whole_tokens.o.ToDoubles()), 1e-4);
  EXPECT_LT(MaxRelativeError(split.S(), whole.S()), 1e-4);
  EXPECT_LT(MaxRelativeError(split.Z(), whole.Z()), 1e-4);
  // With the same whole chunks the bits are the same too.
  if (WholeChunksOf(position, pieces) == WholeChunksOf(position, {total})) {
    EXPECT_EQ(split_tokens.o.Bytes(), whole_tokens.o.Bytes());
    EXPECT_EQ(split.Slot(1), whole.Slot(1));
  }
}

void ExpectSplitChangesNothing(RecurrenceForm form, int64_t position, const std::vector<int>& pieces) {
  for (const Decay decay : {Decay::kNone, Decay::kConstant, Decay::kPerToken, Decay::kRare})
    ExpectSplitChangesNothing(form, position, pieces, {4, 2, 16, 24, true, decay});
  ExpectSplitChangesNothing(form, position, pieces, {4, 4, 10, 24, false, Decay::kPerToken, 2});
}

TEST_P(LinearRecurrenceLaws, REC_03_AnySplitOfAHundredTokens) {
  for (const std::vector<int>& pieces :
       std::vector<std::vector<int>>{{37, 63}, {99, 1}, {1, 99}, {64, 36}, std::vector<int>(100, 1)})
    ExpectSplitChangesNothing(GetParam(), 0, pieces);
}

TEST_P(LinearRecurrenceLaws, SplitsAroundChunksAndFolds) {
  const std::vector<int> short_lengths =
      SlowKernels() ? std::vector<int>{63, 64, 129} : std::vector<int>{62, 63, 64, 65, 66, 127, 128, 129};
  for (const int length : short_lengths)
    ExpectSplitChangesNothing(GetParam(), 0, {length / 2, length - length / 2});
  ExpectSplitChangesNothing(GetParam(), 0, {64, 64, 30});
  for (const int length : {1023, 1024, 1025, 1090}) {
    if (SlowKernels() && length != 1025) continue;
    ExpectSplitChangesNothing(GetParam(), 0, {length - 70, 70});
    if (!SlowKernels()) ExpectSplitChangesNothing(GetParam(), 0, {1, length - 1});
  }
  ExpectSplitChangesNothing(GetParam(), 960, {64, 1, 63, 64});
  ExpectSplitChangesNothing(GetParam(), 1'000'000 - 17, {30, 100, 3});
}

TEST_P(LinearRecurrenceLaws, REC_06_SplitAt256AndInsideTheConvolutionWindow) {
  const int total = SlowKernels() ? 300 : 512;
  const std::vector<int> firsts =
      SlowKernels() ? std::vector<int>{256, 3} : std::vector<int>{256, 1, 2, 3, 4};
  for (const int first : firsts) ExpectSplitChangesNothing(GetParam(), 0, {first, total - first});
}

// Two folds in one run; on a GPU of single tokens, as there are no chunks of a state of so many rows, and
// with a normaliser that no block of columns has to itself.
TEST_P(LinearRecurrenceLaws, ASplitBetweenTwoFoldsChangesNothing) {
  ExpectSplitChangesNothing(GetParam(), 1023, {577, 450}, {1, 1, 129, 17, true});
}

TEST_P(LinearRecurrenceLaws, BatchBitsDoNotDependOnMatesOrderOrThreads) {
  for (const RecurrenceShape& shape :
       {RecurrenceShape{9, 9, 64, 64, true}, RecurrenceShape{6, 2, 20, 37, true},
        RecurrenceShape{3, 1, 64, 128, false}, RecurrenceShape{4, 4, 32, 40, false, Decay::kPerToken, 2},
        RecurrenceShape{6, 2, 20, 37, true, Decay::kRare}}) {
    const std::vector<RunSpec> runs = {{1, 100, 0}, {200, 0, 1}, {1, 1024, 2}, {65, 960, 3}, {17, 55, 4}};
    std::vector<int> order(runs.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::vector<float>> outputs;
    std::vector<std::vector<float>> states;
    for (const int threads : SlowKernels() ? std::vector<int>{1, 2} : std::vector<int>{1, 2, 5}) {
      const auto device = DeviceFor(GetParam(), threads);
      RecurrenceState state(shape, 5);
      state.Randomize(6);
      // One packed tensor per arrangement: fill the run's rows from its own seed.
      std::vector<RunSpec> packed_runs;
      for (const int i : order) packed_runs.push_back(runs[static_cast<size_t>(i)]);
      const Ragged packed(packed_runs);
      RecurrenceTokens batch(shape, packed.num_tokens(), 0);
      std::vector<int> begin(runs.size());
      int row = 0;
      for (const int i : order) {
        const RunSpec& run = runs[static_cast<size_t>(i)];
        begin[static_cast<size_t>(i)] = row;
        Random random(static_cast<uint64_t>(100 + i));
        random.FillUniform(batch.q.view().Rows(row, run.tokens), 0.0, 2.0);
        random.FillUniform(batch.k.view().Rows(row, run.tokens), 0.0, 2.0);
        random.FillNormal(batch.v.view().Rows(row, run.tokens));
        batch.FillDecay(shape.decay, random, row, run.tokens);
        row += run.tokens;
      }
      RunForm(GetParam(), MakeArgs(shape, packed, batch, state), *device);
      for (size_t i = 0; i < runs.size(); ++i) {
        std::vector<float> o;
        for (int t = 0; t < runs[i].tokens; ++t) {
          const float* from = batch.o.row<float>(begin[i] + t);
          o.insert(o.end(), from, from + batch.o.view().row_size());
        }
        // Alone, on the same rows of its own copy.
        RecurrenceState alone(shape, 5);
        alone.Randomize(6);
        RunCase(shape, {runs[i]}, batch, alone, GetParam(), *device, begin[i]);
        for (int t = 0; t < runs[i].tokens; ++t) {
          const float* from = batch.o.row<float>(begin[i] + t);
          ASSERT_TRUE(
              std::equal(from, from + batch.o.view().row_size(), o.begin() + t * batch.o.view().row_size()))
              << "run " << i << " token " << t << " threads " << threads;
        }
        ASSERT_EQ(alone.Slot(runs[i].slot), state.Slot(runs[i].slot));
        if (outputs.size() < runs.size()) {
          outputs.push_back(o);
          states.push_back(state.Slot(runs[i].slot));
        }
        ASSERT_EQ(outputs[i], o);
        ASSERT_EQ(states[i], state.Slot(runs[i].slot));
      }
      std::rotate(order.begin(), order.begin() + 2, order.end());
    }
  }
}

TEST_P(LinearRecurrenceLaws, SlotsOutsideTheBatchKeepTheirBits) {
  const auto device = DeviceFor(GetParam(), 2);
  const RecurrenceShape shape{4, 2, 12, 20, true};
  const std::vector<RunSpec> runs = {{1, 7, 6}, {80, 1000, 2}, {2, 64, 4}};
  RecurrenceState state(shape, 8);
  state.Randomize(8);
  std::vector<std::vector<float>> before;
  for (int slot = 0; slot < 8; ++slot) before.push_back(state.Slot(slot));
  const RecurrenceTokens tokens(shape, 83, 9);
  RunCase(shape, runs, tokens, state, GetParam(), *device);
  for (int slot = 0; slot < 8; ++slot) {
    const bool used = slot == 6 || slot == 2 || slot == 4;
    EXPECT_EQ(state.Slot(slot) == before[static_cast<size_t>(slot)], !used) << "slot " << slot;
  }
}

// A run of no tokens, as batches of a fixed size are filled up with, reads and writes nothing, even where its
// slot is another run's or holds what is no number.
TEST_P(LinearRecurrenceLaws, RunsOfNoTokensTouchNothing) {
  const auto device = DeviceFor(GetParam(), 2);
  for (const bool wide : {false, true}) {
    const RecurrenceShape shape{2, 2, 12, wide ? 300 : 20, true};
    RecurrenceState padded(shape, 4), plain(shape, 4);
    for (RecurrenceState* state : {&padded, &plain}) {
      state->Randomize(8);
      std::fill_n(state->s_inner.row<float>(3), state->s_inner.view().row_size(), NAN);
      std::fill_n(state->z_outer.row<float>(3), state->z_outer.view().row_size(), NAN);
    }
    const RecurrenceTokens padded_tokens(shape, 66, 9), plain_tokens(shape, 66, 9);
    RunCase(shape, {{0, 1024, 1}, {1, 7, 1}, {65, 64, 0}, {0, 1024, 2}, {0, 0, 3}, {0, 0, 0}}, padded_tokens,
            padded, GetParam(), *device);
    RunCase(shape, {{1, 7, 1}, {65, 64, 0}}, plain_tokens, plain, GetParam(), *device);
    EXPECT_EQ(padded_tokens.o.Bytes(), plain_tokens.o.Bytes());
    for (const auto part : {&RecurrenceState::s_outer, &RecurrenceState::s_inner, &RecurrenceState::z_outer,
                            &RecurrenceState::z_inner})
      EXPECT_EQ((padded.*part).Bytes(), (plain.*part).Bytes());
  }
}

TEST_P(LinearRecurrenceLaws, NonFiniteValuesOfOneSequenceReachNoOther) {
  const auto device = DeviceFor(GetParam(), 2);
  const RecurrenceShape shape{2, 1, 12, 70, true};
  RecurrenceState state(shape, 3);
  state.Randomize(10);
  const RecurrenceTokens tokens(shape, 150, 11);
  tokens.v.row<float>(75)[3] = std::numeric_limits<float>::quiet_NaN();
  tokens.k.row<float>(80)[2] = std::numeric_limits<float>::infinity();
  RunCase(shape, {{70, 0, 2}, {70, 0, 0}, {10, 5, 1}}, tokens, state, GetParam(), *device);
  const auto finite = [](const float* row, int64_t count) {
    return std::all_of(row, row + count, [](float x) { return std::isfinite(x); });
  };
  for (int t = 0; t < 150; ++t) EXPECT_TRUE((t >= 70 && t < 140) || finite(tokens.o.row<float>(t), 140)) << t;
  EXPECT_FALSE(finite(tokens.o.row<float>(139), 140));
  const auto slot_finite = [&](int slot) {
    const std::vector<float> values = state.Slot(slot);
    return finite(values.data(), static_cast<int64_t>(values.size()));
  };
  EXPECT_TRUE(slot_finite(1));
  EXPECT_TRUE(slot_finite(2));
  EXPECT_FALSE(slot_finite(0));
}

TEST_P(LinearRecurrenceLaws, REC_01_PackedRunsOnCarriedStateEqualLoneRuns) {
  const auto device = DeviceFor(GetParam(), 2);
  const RecurrenceShape shape{4, 2, 16, 24, true};
  RecurrenceState packed(shape, 3);
  RecurrenceState alone(shape, 3);
  const RecurrenceTokens first(shape, 33, 12);
  RunCase(shape, {{11, 0, 2}, {11, 0, 0}, {11, 0, 1}}, first, packed, GetParam(), *device);
  RunCase(shape, {{11, 0, 2}, {11, 0, 0}, {11, 0, 1}}, first, alone, GetParam(), *device);
  const RecurrenceTokens packed_tokens(shape, 275, 13);
  const RecurrenceTokens alone_tokens(shape, 275, 13);
  RunCase(shape, {{5, 11, 2}, {70, 11, 0}, {200, 11, 1}}, packed_tokens, packed, GetParam(), *device);
  RunCase(shape, {{5, 11, 2}}, alone_tokens, alone, GetParam(), *device, 0);
  RunCase(shape, {{70, 11, 0}}, alone_tokens, alone, GetParam(), *device, 5);
  RunCase(shape, {{200, 11, 1}}, alone_tokens, alone, GetParam(), *device, 75);
  EXPECT_EQ(packed_tokens.o.Bytes(), alone_tokens.o.Bytes());
  for (int slot = 0; slot < 3; ++slot) EXPECT_EQ(packed.Slot(slot), alone.Slot(slot));
}

TEST_P(LinearRecurrenceLaws, REC_02_EveryPackedSequenceStopsAtItsOwnState) {
  const auto device = DeviceFor(GetParam(), 2);
  const RecurrenceShape shape{3, 3, 8, 10, true};
  // {length, snapshot position} per sequence: the packed run up to the snapshot equals the lone token steps.
  std::vector<std::vector<int>> plans = {{384, 640, 896}, {256, 256, 384}, {128, 192, 256}};
  if (SlowKernels()) plans = {{64, 96, 128}};
  for (const std::vector<int>& plan : plans) {
    const int total = std::accumulate(plan.begin(), plan.end(), 0);
    RecurrenceState packed(shape, 3);
    const RecurrenceTokens tokens(shape, total, 14);
    RunCase(shape, {{plan[0], 0, 1}, {plan[1], 0, 2}, {plan[2], 0, 0}}, tokens, packed, GetParam(), *device);
    int first = 0;
    for (const int sequence : {0, 1, 2}) {
      const int slot = (sequence + 1) % 3;
      RecurrenceState alone(shape, 3);
      for (int t = 0; t < plan[static_cast<size_t>(sequence)]; ++t)
        RunCase(shape, {{1, t, slot}}, tokens, alone, GetParam(), *device, first + t);
      first += plan[static_cast<size_t>(sequence)];
      const std::vector<float> expected = alone.Slot(slot);
      const std::vector<float> actual = packed.Slot(slot);
      EXPECT_LT(MaxRelativeError({actual.begin(), actual.end()}, {expected.begin(), expected.end()}), 1e-4)
          << "sequence " << sequence;
    }
  }
}

TEST_P(LinearRecurrenceLaws, REC_10_ShortRunDoesNotFeelItsNeighboursLength) {
  const auto device = DeviceFor(GetParam(), 2);
  const RecurrenceShape shape{4, 2, 16, 24, true};
  std::vector<std::vector<float>> results;
  for (const int neighbour : {0, 12, 40}) {
    RecurrenceState state(shape, 2);
    RecurrenceTokens tokens(shape, 3 + neighbour, 15);
    // The same three tokens, wherever they stand.
    Random random(16);
    random.FillUniform(tokens.q.view().Rows(neighbour, 3), 0.0, 2.0);
    random.FillUniform(tokens.k.view().Rows(neighbour, 3), 0.0, 2.0);
    random.FillNormal(tokens.v.view().Rows(neighbour, 3));
    std::vector<RunSpec> runs = {{3, 0, 1}};
    if (neighbour > 0) runs.insert(runs.begin(), {neighbour, 0, 0});
    RunCase(shape, runs, tokens, state, GetParam(), *device);
    std::vector<float> result = state.Slot(1);
    for (int t = neighbour; t < neighbour + 3; ++t)
      result.insert(result.end(), tokens.o.row<float>(t), tokens.o.row<float>(t) + 4 * 24);
    results.push_back(result);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(LinearRecurrenceLaws, REC_12_FiveThousandOnesAreExactlyFiveThousand) {
  const auto device = DeviceFor(GetParam(), 1);
  const RecurrenceShape shape{1, 1, 1, 1, false};
  RecurrenceState state(shape, 1);
  const RecurrenceTokens tokens(shape, 5000, 17);
  for (const Guarded* part : {&tokens.q, &tokens.k, &tokens.v}) const_cast<Guarded*>(part)->Fill(1.0);
  RunCase(shape, {{5000, 0, 0}}, tokens, state, GetParam(), *device);
  EXPECT_EQ(state.S()[0], 5000.0);
  EXPECT_EQ(tokens.o.row<float>(4999)[0], 5000.0f);
  EXPECT_EQ(tokens.o.row<float>(2999)[0], 3000.0f);
}

// Decay 0.999, whose fixed point is 1,000; a state of 16 bits would stop at 768 or 256.
TEST_P(LinearRecurrenceLaws, REC_12_TwentyThousandOnesThatDecayComeToTheirFixedPoint) {
  const auto device = DeviceFor(GetParam(), 1);
  const RecurrenceShape shape{1, 1, 1, 1, false, Decay::kConstant};
  RecurrenceState state(shape, 1);
  RecurrenceTokens tokens(shape, 20000, 17);
  for (Guarded* part : {&tokens.q, &tokens.k, &tokens.v}) part->Fill(1.0);
  tokens.log_decay.Fill(std::log(0.999));
  RunCase(shape, {{20000, 0, 0}}, tokens, state, GetParam(), *device);
  const double decay = std::exp(static_cast<double>(tokens.log_decay.row<float>(0)[0]));
  EXPECT_NEAR(state.S()[0], (1.0 - std::pow(decay, 20000)) / (1.0 - decay), 0.02);
}

// A state that decays and is fed nothing goes to zero and stays finite: no denormal is left to slow a step
// down. By chunks, and where there are none; e^-96 of what was there would be one.
TEST_P(LinearRecurrenceLaws, ADecayedStateEndsAtZero) {
  const auto device = DeviceFor(GetParam(), 1);
  for (const RecurrenceShape& shape : {RecurrenceShape{1, 1, 4, 4, true, Decay::kConstant},
                                       RecurrenceShape{1, 1, 129, 1, true, Decay::kConstant}}) {
    RecurrenceState state(shape, 1);
    state.Randomize(3);
    RecurrenceTokens tokens(shape, 400, 18);
    tokens.k.Fill(0.0);
    tokens.log_decay.Fill(-0.24);
    RunCase(shape, {{400, 0, 0}}, tokens, state, GetParam(), *device);
    for (const double value : state.S()) EXPECT_EQ(value, 0.0);
    for (const double value : state.Z()) EXPECT_EQ(value, 0.0);
  }
}

// In chunks too, where a difference of two infinite logarithms would be NaN.
TEST_P(LinearRecurrenceLaws, ADecayOfMinusInfinityIsTheLeastOne) {
  const auto device = DeviceFor(GetParam(), 1);
  const RecurrenceShape shape{2, 2, 16, 24, true, Decay::kPerToken};
  RecurrenceState infinite_state(shape, 1), least_state(shape, 1);
  RecurrenceTokens infinite(shape, 130, 4), least(shape, 130, 4);
  for (const int t : {10, 70, 71, 129}) {
    for (int h = 0; h < 2; ++h) {
      infinite.log_decay.row<float>(t)[h] = -std::numeric_limits<float>::infinity();
      least.log_decay.row<float>(t)[h] = kMinLogDecay;
    }
  }
  infinite_state.Randomize(3);
  least_state.Randomize(3);
  RunCase(shape, {{130, 0, 0}}, infinite, infinite_state, GetParam(), *device);
  RunCase(shape, {{130, 0, 0}}, least, least_state, GetParam(), *device);
  EXPECT_EQ(infinite.o.Bytes(), least.o.Bytes());
  EXPECT_EQ(infinite_state.Slot(0), least_state.Slot(0));
}

// Tokens that forget all make the sums of logarithms of their chunk large, whose differences weigh later
// tokens.
TEST_P(LinearRecurrenceLaws, WhatWasForgottenBlursNoLaterWeight) {
  const auto device = DeviceFor(GetParam(), 1);
  const RecurrenceShape shape{2, 2, 16, 24, false, Decay::kPerToken};
  const Ragged ragged({{128, 0, 0}});
  RecurrenceState state(shape, 1);
  RecurrenceTokens tokens(shape, 128, 4);
  for (int t = 0; t < 128; ++t)
    for (int h = 0; h < 2; ++h)
      tokens.log_decay.row<float>(t)[h] = t % 64 < 20 ? -190.0f : -0.01f * static_cast<float>(1 + t % 7);
  const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
  const Truth truth = RunReference(args, state);
  RunForm(GetParam(), args, *device);
  EXPECT_LT(Nmse(tokens.o, truth.o), Limit(*device));
  EXPECT_LT(Nmse(state.S(), truth.s), Limit(*device));
}

// Feeds `length` tokens of d = 4 in pieces of `piece` and returns the worst relative error of S, z and the
// last outputs against double precision.
double RangeError(RecurrenceForm form, int64_t length, bool repeated) {
  const auto device = DeviceFor(form, 1);
  const RecurrenceShape shape{1, 1, 4, 4, true};
  constexpr int kPiece = 8192;
  RecurrenceState state(shape, 1);
  const RecurrenceTokens tokens(shape, kPiece, 18);
  if (repeated) {
    for (int t = 1; t < kPiece; ++t) {
      std::copy_n(tokens.q.row<float>(0), 4, tokens.q.row<float>(t));
      std::copy_n(tokens.k.row<float>(0), 4, tokens.k.row<float>(t));
      std::copy_n(tokens.v.row<float>(0), 4, tokens.v.row<float>(t));
    }
  } else {
    // Sums that grow: with v around zero the relative error of S would say nothing.
    Random(19).FillUniform(tokens.v, 0.0, 1.0);
  }
  std::vector<double> s(16, 0.0), z(4, 0.0), o(static_cast<size_t>(kPiece) * 4);
  double error = 0.0;
  for (int64_t done = 0; done < length; done += kPiece) {
    const int count = static_cast<int>(std::min<int64_t>(kPiece, length - done));
    const Ragged ragged({{count, done, 0}});
    const LinearRecurrenceArgs args = MakeArgs(shape, ragged, tokens, state);
    LinearRecurrenceReference(args, s.data(), z.data(), o.data());
    RunForm(form, args, *device);
    const float* last = tokens.o.row<float>(count - 1);
    for (int j = 0; j < 4; ++j)
      error = std::max(error, std::abs(last[j] / o[static_cast<size_t>(count - 1) * 4 + j] - 1.0));
  }
  return std::max({error, MaxRelativeError(state.S(), s), MaxRelativeError(state.Z(), z)});
}

TEST_P(LinearRecurrenceLaws, RangeOfAMillionEqualTokens) {
  EXPECT_LT(RangeError(GetParam(), SlowKernels() ? 10'000 : 1'000'000, true), 2e-4);
}

TEST_P(LinearRecurrenceLaws, RangeOfAMillionRandomTokens) {
  EXPECT_LT(RangeError(GetParam(), SlowKernels() ? 10'000 : 1'000'000, false), 2e-5);
}

// The duality (Dao & Gu 2024): with decay 1, Mamba-2's recurrence is linear attention without a normaliser,
// and both are the quadratic form (tril(Q Kᵀ) ∘ L) V with L = 1.
TEST_P(LinearRecurrenceLaws, DualityOfDecayOneWithLinearAttentionAndTheMaskedQuadraticForm) {
  const auto device = DeviceFor(GetParam(), 2);
  constexpr int kTokens = 150;
  const RecurrenceShape plain{3, 3, 20, 37, false};
  RecurrenceShape decayed = plain;
  decayed.decay = Decay::kPerToken;
  RecurrenceState plain_state(plain, 1);
  RecurrenceState decayed_state(decayed, 1);
  RecurrenceTokens plain_tokens(plain, kTokens, 30);
  RecurrenceTokens decayed_tokens(decayed, kTokens, 30);
  decayed_tokens.log_decay.Fill(0.0);
  RunCase(plain, {{kTokens, 0, 0}}, plain_tokens, plain_state, GetParam(), *device);
  RunCase(decayed, {{kTokens, 0, 0}}, decayed_tokens, decayed_state, GetParam(), *device);
  EXPECT_EQ(decayed_tokens.o.Bytes(), plain_tokens.o.Bytes());
  EXPECT_EQ(decayed_state.S(), plain_state.S());
  const double scale = 1.0 / std::sqrt(20.0);
  std::vector<double> quadratic(static_cast<size_t>(kTokens) * 3 * 37, 0.0);
  for (int t = 0; t < kTokens; ++t)
    for (int s = 0; s <= t; ++s)
      for (int h = 0; h < 3; ++h) {
        double score = 0.0;
        for (int i = 0; i < 20; ++i)
          score += static_cast<double>(plain_tokens.q.row<float>(t)[h * 20 + i]) *
                   plain_tokens.k.row<float>(s)[h * 20 + i];
        for (int j = 0; j < 37; ++j)
          quadratic[static_cast<size_t>((t * 3 + h) * 37 + j)] +=
              score * scale * plain_tokens.v.row<float>(s)[h * 37 + j];
      }
  EXPECT_LT(Nmse(plain_tokens.o, quadratic), Limit(*device));
}

// The same with a decay of each token's own: L[t, s] is the product of the decays after s, up to t.
TEST_P(LinearRecurrenceLaws, DualityOfAnyDecayWithTheMaskedQuadraticForm) {
  const auto device = DeviceFor(GetParam(), 2);
  constexpr int kTokens = 150;
  const RecurrenceShape shape{2, 2, 9, 11, true, Decay::kPerToken};
  RecurrenceState state(shape, 1);
  const RecurrenceTokens tokens(shape, kTokens, 31);
  RunCase(shape, {{kTokens, 0, 0}}, tokens, state, GetParam(), *device);
  std::vector<double> quadratic;
  for (int t = 0; t < kTokens; ++t)
    for (int h = 0; h < 2; ++h) {
      std::vector<double> row(11, 0.0);
      double norm = 1e-10;
      double log_mask = 0.0;
      for (int s = t; s >= 0; --s) {
        double score = 0.0;
        for (int i = 0; i < 9; ++i)
          score += static_cast<double>(tokens.q.row<float>(t)[h * 9 + i]) * tokens.k.row<float>(s)[h * 9 + i];
        score *= std::exp(log_mask);
        norm += score;
        for (int j = 0; j < 11; ++j)
          row[static_cast<size_t>(j)] += score * tokens.v.row<float>(s)[h * 11 + j];
        log_mask += tokens.log_decay.row<float>(s)[h];
      }
      for (const double value : row) quadratic.push_back(value / norm);
    }
  EXPECT_LT(Nmse(tokens.o, quadratic), Limit(*device));
}

}  // namespace
}  // namespace weir
