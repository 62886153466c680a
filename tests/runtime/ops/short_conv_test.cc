#include "runtime/ops/short_conv/short_conv.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"
#include "tests/runtime/ops/many_runs.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

struct Weights {
  Weights(int width, int channels) : weight(DType::kF32, {width, channels}), bias(DType::kF32, {channels}) {
    Random random(1);
    random.FillNormal(weight);
    random.FillNormal(bias);
  }
  Guarded weight, bias;
};

TEST(ShortConv, EqualsReferenceAtOddSizesWithRunsShorterThanTheWindow) {
  const auto device = CreateTestDevice(2);
  for (const int width : {1, 2, 4, 7}) {
    for (const int channels : {1, 19, 64, 700, 1030}) {
      for (const bool plain : {false, true}) {
        const Ragged ragged({{1, 9, 4}, {2, 0, 1}, {3, 5, 0}, {100, 70, 6}, {4, 1, 3}});
        const Weights weights(width, channels);
        Guarded x(DType::kF32, {ragged.num_tokens(), channels}, 3);
        Guarded y(DType::kF32, {ragged.num_tokens(), channels}, 1);
        Guarded window(DType::kF32, {7, width - 1, channels});
        Random random(2);
        random.FillNormal(x);
        random.FillNormal(window);
        const std::vector<std::byte> before = window.Bytes();
        ShortConvArgs args{ragged.batch(), x, weights.weight, weights.bias, window, y, true};
        if (plain) {
          args.bias = TensorView();
          args.silu = false;
        }
        std::vector<double> expected(static_cast<size_t>(x.view().num_elements()));
        std::vector<double> expected_window = window.ToDoubles();
        ShortConvReference(args, expected.data(), expected_window.data());
        RunKernel(kShortConv, args, *device);
        EXPECT_LT(Nmse(y, expected), kNmseF32) << "width " << width << " channels " << channels;
        // Slots outside the batch are in there too: 2 and 5 are equal only if they did not change.
        EXPECT_EQ(window.ToDoubles(), expected_window);
        if (width > 1) {
          EXPECT_NE(window.Bytes(), before);
        }
        EXPECT_TRUE(y.RedZonesIntact());
        EXPECT_TRUE(window.RedZonesIntact());
      }
    }
  }
}

TEST(ShortConv, KnowsAHandComputedWindow) {
  const auto device = CreateTestDevice(1);
  const Ragged ragged({{2, 5, 0}});
  Guarded weight(DType::kF32, {3, 1}), window(DType::kF32, {1, 2, 1}), x(DType::kF32, {2, 1}),
      y(DType::kF32, {2, 1});
  weight.Assign({100.0, 10.0, 1.0});
  window.Assign({1.0, 2.0});
  x.Assign({3.0, 4.0});
  RunKernel(kShortConv, {ragged.batch(), x, weight, TensorView(), window, y, false}, *device);
  EXPECT_EQ(y.ToDoubles(), (std::vector<double>{123.0, 234.0}));
  EXPECT_EQ(window.ToDoubles(), (std::vector<double>{3.0, 4.0}));
}

TEST(ShortConv, REC_06_WindowIsCarriedAcrossEverySplit) {
  const auto device = CreateTestDevice(2);
  constexpr int kChannels = 37;
  const int num_tokens = SlowKernels() ? 60 : 512;
  const Weights weights(4, kChannels);
  Guarded x(DType::kF32, {num_tokens, kChannels}), whole(DType::kF32, {num_tokens, kChannels});
  Guarded whole_window(DType::kF32, {1, 3, kChannels});
  Random(3).FillNormal(x);
  whole_window.Fill(0.0);
  const Ragged all({{num_tokens, 0, 0}});
  RunKernel(kShortConv, {all.batch(), x, weights.weight, weights.bias, whole_window, whole, true}, *device);
  for (const std::vector<int>& pieces :
       std::vector<std::vector<int>>{{num_tokens / 2, num_tokens / 2},
                                     {1, num_tokens - 1},
                                     {2, num_tokens - 2},
                                     {3, num_tokens - 3},
                                     {4, num_tokens - 4},
                                     {1, 1, 1, num_tokens - 3},
                                     {18, 17, num_tokens - 35},
                                     std::vector<int>(static_cast<size_t>(num_tokens), 1)}) {
    Guarded y(DType::kF32, {num_tokens, kChannels}), window(DType::kF32, {1, 3, kChannels});
    window.Fill(0.0);
    int done = 0;
    for (const int piece : pieces) {
      const Ragged part({{piece, done, 0}});
      RunKernel(kShortConv,
                {part.batch(), x.view().Rows(done, piece), weights.weight, weights.bias, window,
                 y.view().Rows(done, piece), true},
                *device);
      done += piece;
    }
    EXPECT_EQ(y.Bytes(), whole.Bytes());
    EXPECT_EQ(window.Bytes(), whole_window.Bytes());
  }
}

TEST(ShortConv, ManyRunsSomeWithoutTokensHoweverTheirRowsLie) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged(ManyRuns());
  for (const int width : {1, 3, 4, 16}) {
    for (const int channels : {37, 40}) {
      std::vector<std::vector<std::byte>> results, windows;
      for (const int padding : {0, 1}) {
        const Weights weights(width, channels);
        Guarded x(DType::kF32, {ragged.num_tokens(), channels}, padding);
        Guarded y(DType::kF32, {ragged.num_tokens(), channels}, padding);
        Guarded window(DType::kF32, {kManyRuns, width - 1, channels});
        Random random(7);
        random.FillNormal(x);
        random.FillNormal(window);
        const ShortConvArgs args{ragged.batch(), x, weights.weight, weights.bias, window, y, true};
        std::vector<double> expected(static_cast<size_t>(x.view().num_elements()));
        std::vector<double> expected_window = window.ToDoubles();
        ShortConvReference(args, expected.data(), expected_window.data());
        RunKernel(kShortConv, args, *device);
        EXPECT_LT(Nmse(y, expected), kNmseF32) << "width " << width << " channels " << channels;
        EXPECT_EQ(window.ToDoubles(), expected_window) << "width " << width << " channels " << channels;
        EXPECT_TRUE(y.RedZonesIntact() && window.RedZonesIntact());
        results.push_back(y.Bytes());
        windows.push_back(window.Bytes());
      }
      EXPECT_EQ(results[0], results[1]) << "width " << width << " channels " << channels;
      EXPECT_EQ(windows[0], windows[1]);
    }
  }
}

TEST(ShortConv, REC_10_NeighboursOrderAndThreadsChangeNoBit) {
  constexpr int kChannels = 530;
  const Weights weights(4, kChannels);
  const auto result = [&](int neighbour, bool first, int threads) {
    const auto device = CreateTestDevice(threads);
    std::vector<RunSpec> runs = {{3, 0, 1}};
    if (neighbour > 0) runs.insert(first ? runs.end() : runs.begin(), {neighbour, 2, 0});
    const int row = neighbour > 0 && !first ? neighbour : 0;
    const Ragged ragged(runs);
    Guarded x(DType::kF32, {3 + neighbour, kChannels}), y(DType::kF32, {3 + neighbour, kChannels});
    Guarded window(DType::kF32, {2, 3, kChannels});
    Random(4).FillNormal(x);
    Random(5).FillNormal(x.view().Rows(row, 3));
    window.Fill(0.0);
    // A neighbour gone bad must stay alone too.
    if (neighbour > 0) x.row<float>(first ? 4 : 0)[0] = std::numeric_limits<float>::quiet_NaN();
    RunKernel(kShortConv, {ragged.batch(), x, weights.weight, weights.bias, window, y, true}, *device);
    std::vector<float> values(y.row<float>(row), y.row<float>(row) + 3 * kChannels);
    values.insert(values.end(), window.row<float>(1), window.row<float>(1) + 3 * kChannels);
    return values;
  };
  const std::vector<float> alone = result(0, true, 1);
  EXPECT_EQ(alone, result(12, false, 1));
  EXPECT_EQ(alone, result(40, true, 2));
  EXPECT_EQ(alone, result(300, false, 4));
}

TEST(ShortConv, REC_10_ShortRunStaysFinite) {
  const auto device = CreateTestDevice(1);
  const Weights weights(4, 5);
  const Ragged ragged({{1, 0, 0}});
  Guarded x(DType::kF32, {1, 5}), y(DType::kF32, {1, 5}), window(DType::kF32, {2, 3, 5});
  Random(6).FillNormal(x);
  std::fill_n(window.row<float>(0), 15, 0.0f);  // slot 1 stays NaN
  RunKernel(kShortConv, {ragged.batch(), x, weights.weight, weights.bias, window, y, true}, *device);
  for (const double value : y.ToDoubles()) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace weir
