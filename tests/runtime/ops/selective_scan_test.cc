#include "runtime/ops/selective_scan/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/scan_case.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

TEST(SelectiveScan, EqualsReferenceAtOddSizes) {
  const auto device = CreateTestDevice(2);
  const auto sizes = [](std::vector<int> all, std::vector<int> some) { return SlowKernels() ? some : all; };
  for (const int channels : sizes({1, 7, 16, 63, 64, 130, 211}, {1, 7, 64, 130})) {
    for (const int state_dim : sizes({1, 3, 8, 16, 64, 130, 300}, {3, 16, 130})) {
      for (const bool plain : {false, true}) {
        const Ragged ragged({{1, 9, 4}, {2, 0, 1}, {0, 7, 5}, {70, 5, 0}, {1, 70, 6}});
        ScanCase scan(channels, state_dim, ragged.num_tokens(), /*slots=*/8, 1);
        SelectiveScanArgs args = scan.Args(ragged);
        if (plain) args.dt_bias = args.z = TensorView();
        std::vector<double> state = scan.state.ToDoubles(), y = scan.SizedLikeY();
        SelectiveScanReference(args, state.data(), y.data());
        RunKernel(kSelectiveScan, args, *device);
        EXPECT_LT(Nmse(scan.y, y), kNmseF32) << channels << " channels, state " << state_dim;
        // Slots 2, 3, 5 and 7 are in there too and must be what they were.
        EXPECT_LT(Nmse(scan.state, state), kNmseF32) << channels << " channels, state " << state_dim;
        EXPECT_TRUE(scan.RedZonesIntact());
      }
    }
  }
}

TEST(SelectiveScan, IdleSlotsKeepTheirBits) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged({{3, 0, 1}, {1, 4, 3}});
  ScanCase scan(70, 16, ragged.num_tokens(), /*slots=*/5, 2);
  const std::vector<double> before = scan.state.ToDoubles();
  RunKernel(kSelectiveScan, scan.Args(ragged), *device);
  const std::vector<double> after = scan.state.ToDoubles();
  const int64_t slot = 70 * 16;
  for (int64_t i = 0; i < 5 * slot; ++i) {
    if (i / slot == 1 || i / slot == 3) continue;
    ASSERT_EQ(after[i], before[i]) << "slot " << i / slot;
  }
}

// Two tokens by hand: softplus(0) = ln 2, so that exp(Δ A) is 1/2 and 1/4.
TEST(SelectiveScan, KnowsAHandComputedSequence) {
  const auto device = CreateTestDevice(1);
  const Ragged ragged({{2, 0, 0}});
  Guarded u(DType::kF32, {2, 1}), dt(DType::kF32, {2, 1}), a(DType::kF32, {2, 1}), b(DType::kF32, {2, 2}),
      c(DType::kF32, {2, 2}), d(DType::kF32, {1}), state(DType::kF32, {1, 2, 1}), y(DType::kF32, {2, 1});
  const double ln2 = std::log(2.0);
  u.Assign({1 / ln2, 2 / ln2});
  dt.Assign({0, 0});
  a.Assign({-1, -2});
  b.Assign({1, 3, 5, 7});
  c.Assign({1, 10, 1, 10});
  d.Assign({100 * ln2});
  state.Assign({8, 16});
  RunKernel(kSelectiveScan, {ragged.batch(), u, dt, TensorView(), a, b, c, d, TensorView(), state, y},
            *device);
  // h = (8/2 + 1, 16/4 + 3) = (5, 7), then (5/2 + 10, 7/4 + 14) = (12.5, 15.75).
  EXPECT_NEAR(y.row<float>(0)[0], 5 + 70 + 100, 1e-4);
  EXPECT_NEAR(y.row<float>(1)[0], 12.5 + 157.5 + 200, 1e-4);
  EXPECT_NEAR(state.row<float>(0)[0], 12.5, 1e-5);
  EXPECT_NEAR(state.row<float>(0)[1], 15.75, 1e-5);
}

// However a sequence is cut, in one block of channels and in several, whole vectors or not.
TEST(SelectiveScan, REC_03_CutsChangeNoBit) {
  constexpr int kTokens = 100;
  const auto device = CreateTestDevice(2);
  for (const int channels : {5, 16, 64, 83, 150}) {
    if (SlowKernels() && channels != 5 && channels != 64) continue;
    for (const int state_dim : {4, 16, 200}) {
      const Ragged all({{kTokens, 0, 0}});
      ScanCase whole(channels, state_dim, kTokens, 1, 3);
      RunKernel(kSelectiveScan, whole.Args(all), *device);
      for (const std::vector<int>& cuts : std::vector<std::vector<int>>{
               {37, 63}, {99, 1}, {1, 99}, {64, 36}, {2, 3, 1, 94}, std::vector<int>(kTokens, 1)}) {
        ScanCase pieces(channels, state_dim, kTokens, 1, 3);
        int done = 0;
        for (const int n : cuts) {
          const Ragged part({{n, done, 0}});
          RunKernel(kSelectiveScan, pieces.Args(part, done), *device);
          done += n;
        }
        EXPECT_EQ(pieces.y.Bytes(), whole.y.Bytes()) << channels << " channels, first cut " << cuts[0];
        EXPECT_EQ(pieces.state.Bytes(), whole.state.Bytes())
            << channels << " channels, first cut " << cuts[0];
      }
    }
  }
}

// So many runs that a kernel may cut its work in another way than for one.
TEST(SelectiveScan, RunsHaveTheSameBitsInACrowd) {
  const auto device = CreateTestDevice(2);
  for (const int state_dim : {16, 6}) {
    for (const int channels : {8, 7}) {
      constexpr int kRuns = 600;
      std::vector<RunSpec> runs;
      for (int n = 0; n < kRuns; ++n) runs.push_back({n % 50 == 7 ? 3 : 1, n, kRuns - 1 - n});
      const Ragged crowd(runs);
      ScanCase scan(channels, state_dim, crowd.num_tokens(), kRuns, 10);
      ScanCase alone(channels, state_dim, crowd.num_tokens(), kRuns, 10);
      std::vector<double> state = scan.state.ToDoubles(), y = scan.SizedLikeY();
      SelectiveScanReference(scan.Args(crowd), state.data(), y.data());
      RunKernel(kSelectiveScan, scan.Args(crowd), *device);
      EXPECT_LT(Nmse(scan.y, y), kNmseF32);
      EXPECT_LT(Nmse(scan.state, state), kNmseF32);
      EXPECT_TRUE(scan.RedZonesIntact());
      for (const int n : {0, 7, 300, 599}) {
        const int first = crowd.batch().cu_seqlens.data<int32_t>()[n];
        const Ragged one({runs[static_cast<size_t>(n)]});
        RunKernel(kSelectiveScan, alone.Args(one, first), *device);
        for (int t = first; t < first + one.num_tokens(); ++t)
          EXPECT_TRUE(
              std::equal(alone.y.row<float>(t), alone.y.row<float>(t) + channels, scan.y.row<float>(t)));
        const int slot = kRuns - 1 - n;
        EXPECT_TRUE(std::equal(alone.state.row<float>(slot),
                               alone.state.row<float>(slot) + channels * state_dim,
                               scan.state.row<float>(slot)));
      }
    }
  }
}

// A run of no tokens, as batches of a fixed size are filled up with, reads and writes nothing, even where its
// slot is another run's or holds what is no number.
TEST(SelectiveScan, RunsOfNoTokensTouchNothing) {
  const auto device = CreateTestDevice(2);
  ScanCase padded(70, 16, 5, /*slots=*/3, 11), plain(70, 16, 5, /*slots=*/3, 11);
  for (ScanCase* scan : {&padded, &plain}) std::fill_n(scan->state.row<float>(2), 70 * 16, NAN);
  const Ragged with({{0, 3, 0}, {1, 7, 0}, {4, 0, 1}, {0, 0, 2}, {0, 0, 1}}), without({{1, 7, 0}, {4, 0, 1}});
  RunKernel(kSelectiveScan, padded.Args(with), *device);
  RunKernel(kSelectiveScan, plain.Args(without), *device);
  EXPECT_EQ(padded.y.Bytes(), plain.y.Bytes());
  EXPECT_EQ(padded.state.Bytes(), plain.state.Bytes());
}

TEST(SelectiveScan, REC_10_NeighboursOrderAndThreadsChangeNoBit) {
  constexpr int kChannels = 200;
  constexpr int kStateDim = 16;
  const auto result = [&](int neighbour, bool first, int threads) {
    const auto device = CreateTestDevice(threads);
    std::vector<RunSpec> runs = {{3, 0, 1}};
    if (neighbour > 0) runs.insert(first ? runs.end() : runs.begin(), {neighbour, 2, 0});
    const int row = neighbour > 0 && !first ? neighbour : 0;
    const Ragged ragged(runs);
    ScanCase scan(kChannels, kStateDim, 3 + neighbour, 2, 4);
    scan.FillTokens(row, 3, 5);
    std::fill_n(scan.state.row<float>(1), kChannels * kStateDim, 0.25f);
    // A neighbour gone bad must stay alone too.
    if (neighbour > 0) scan.u.row<float>(first ? 4 : 0)[0] = std::numeric_limits<float>::quiet_NaN();
    RunKernel(kSelectiveScan, scan.Args(ragged), *device);
    std::vector<float> values;
    for (int t = row; t < row + 3; ++t)
      values.insert(values.end(), scan.y.row<float>(t), scan.y.row<float>(t) + kChannels);
    values.insert(values.end(), scan.state.row<float>(1), scan.state.row<float>(1) + kChannels * kStateDim);
    return values;
  };
  const std::vector<float> alone = result(0, true, 1);
  EXPECT_EQ(alone, result(12, false, 1));
  EXPECT_EQ(alone, result(40, true, 2));
  EXPECT_EQ(alone, result(300, false, 4));
}

TEST(SelectiveScan, TheOutputMayTakeTheInputsPlace) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged({{5, 0, 0}, {1, 9, 1}});
  ScanCase plain(83, 16, 6, 2, 6);
  RunKernel(kSelectiveScan, plain.Args(ragged), *device);
  for (int which = 0; which < 3; ++which) {
    ScanCase scan(83, 16, 6, 2, 6);
    SelectiveScanArgs args = scan.Args(ragged);
    args.y = which == 0 ? args.u : which == 1 ? args.dt : args.z;
    RunKernel(kSelectiveScan, args, *device);
    for (int t = 0; t < 6; ++t)
      for (int i = 0; i < 83; ++i) ASSERT_EQ(args.y.row<float>(t)[i], plain.y.row<float>(t)[i]) << which;
    EXPECT_TRUE(scan.RedZonesIntact());
  }
}

// A channel that never decays: f32 counts to 5000 where 16 bits would stop at 256 or 2048; and one with decay
// 0.999, which goes to 1000.
TEST(SelectiveScan, REC_12_TheStateIsF32) {
  const auto device = CreateTestDevice(1);
  const auto after = [&](double decay, int steps) {
    // Δ = 1 where softplus(dt) = 1.
    Guarded u(DType::kF32, {steps, 1}), dt(DType::kF32, {steps, 1}), a(DType::kF32, {1, 1}),
        b(DType::kF32, {steps, 1}), c(DType::kF32, {steps, 1}), d(DType::kF32, {1}),
        state(DType::kF32, {1, 1, 1}), y(DType::kF32, {steps, 1});
    u.Fill(1);
    dt.Fill(std::log(std::exp(1.0) - 1));
    a.Fill(std::log(decay));
    b.Fill(1);
    c.Fill(1);
    d.Fill(0);
    state.Fill(0);
    const Ragged ragged({{steps, 0, 0}});
    RunKernel(kSelectiveScan, {ragged.batch(), u, dt, TensorView(), a, b, c, d, TensorView(), state, y},
              *device);
    return static_cast<double>(y.row<float>(steps - 1)[0]);
  };
  EXPECT_NEAR(after(1.0, 5000), 5000, 0.05);
  EXPECT_NEAR(after(0.999, SlowKernels() ? 8000 : 20000), 1000, 0.5);
}

// Step sizes from none to huge: the state is kept, or wiped, and nothing overflows on the way.
TEST(SelectiveScan, ExtremeStepsAndRates) {
  const auto device = CreateTestDevice(1);
  const Ragged ragged({{2, 0, 0}, {1, 0, 1}});
  for (const float dt : {-1e30f, -200.0f, -90.0f, -20.0f, -1.0f, 0.0f, 3.0f, 25.0f, 88.0f, 1e4f}) {
    for (const float rate : {-1e-30f, -1e-6f, -1.0f, -87.0f, -126.0f, -1e4f, -1e30f}) {
      ScanCase scan(21, 2, 3, 2, 7);
      scan.dt.Fill(dt);
      scan.a.Fill(rate);
      scan.dt_bias.Fill(0);
      std::vector<double> state = scan.state.ToDoubles(), y = scan.SizedLikeY();
      SelectiveScanReference(scan.Args(ragged), state.data(), y.data());
      RunKernel(kSelectiveScan, scan.Args(ragged), *device);
      EXPECT_LT(Nmse(scan.y, y), 1e-10) << "dt " << dt << " rate " << rate;
      EXPECT_LT(Nmse(scan.state, state), 1e-10) << "dt " << dt << " rate " << rate;
    }
  }
}

// A long silence lets the state decay below what f32 holds; it ends at zero, not at denormals, which would
// cost a hundred times the time.
TEST(SelectiveScan, ADecayedStateIsZeroAndNotDenormal) {
  for (const int threads : {1, 3}) {
    const auto device = CreateTestDevice(threads);
    const Ragged ragged({{400, 0, 0}});
    ScanCase scan(130, 4, 400, 1, 8);
    scan.u.Fill(0);
    scan.dt.Fill(0.5);
    scan.dt_bias.Fill(0);
    scan.a.Fill(-0.4);
    RunKernel(kSelectiveScan, scan.Args(ragged), *device);
    for (const double h : scan.state.ToDoubles()) EXPECT_EQ(h, 0.0);
  }
}

TEST(SelectiveScan, ABadChannelStaysAlone) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged({{4, 0, 0}});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ScanCase scan(40, 16, 4, 1, 9);
    scan.dt.row<float>(1)[17] = std::numeric_limits<float>::quiet_NaN();
    scan.u.row<float>(2)[30] = bad;
    RunKernel(kSelectiveScan, scan.Args(ragged), *device);
    for (int i = 0; i < 40; ++i) {
      const bool finite = std::isfinite(scan.y.row<float>(3)[i]);
      EXPECT_EQ(finite, i != 17 && i != 30) << "channel " << i;
    }
  }
}

}  // namespace
}  // namespace weir
