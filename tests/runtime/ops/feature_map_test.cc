#include "runtime/ops/feature_map/feature_map.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "tests/runtime/ops/many_runs.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

TEST(EluPlusOne, EqualsReferenceAtOddSizesAndInPlace) {
  const auto device = CreateTestDevice(2);
  for (const int channels : {1, 5, 16, 67, 576}) {
    for (const int tokens : {1, 4, 71}) {
      Random random(static_cast<uint64_t>(channels + tokens));
      Guarded x(DType::kF32, {tokens, channels}, 3);
      Guarded y(DType::kF32, {tokens, channels}, 1);
      random.FillNormal(x, 3.0);
      std::vector<double> expected(static_cast<size_t>(tokens * channels));
      EluPlusOneReference({x, y}, expected.data());
      RunKernel(kEluPlusOne, {x, y}, *device);
      EXPECT_LT(Nmse(y, expected), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact());
      RunKernel(kEluPlusOne, {x, x}, *device);
      EXPECT_EQ(x.Bytes(), y.Bytes());
      EXPECT_TRUE(x.RedZonesIntact());
    }
  }
}

TEST(EluPlusOne, AlignmentChangesNoBit) {
  const auto device = CreateTestDevice(2);
  std::vector<std::vector<std::byte>> results;
  for (const int padding : {0, 1}) {
    Guarded x(DType::kF32, {7, 68}, padding), y(DType::kF32, {7, 68}, padding);
    Random(5).FillNormal(x, 3.0);
    RunKernel(kEluPlusOne, {x, y}, *device);
    results.push_back(y.Bytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(EluPlusOne, IsNeverNegativeAndKeepsNaN) {
  const auto device = CreateTestDevice(1);
  Guarded x(DType::kF32, {1, 6});
  Guarded y(DType::kF32, {1, 6});
  x.Assign({0.0, -1.0, -1e6, 1e6, -std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::quiet_NaN()});
  RunKernel(kEluPlusOne, {x, y}, *device);
  EXPECT_EQ(y.row<float>(0)[0], 1.0f);
  EXPECT_NEAR(y.row<float>(0)[1], std::exp(-1.0), 1e-7);
  EXPECT_EQ(y.row<float>(0)[2], 0.0f);
  EXPECT_EQ(y.row<float>(0)[3], 1000001.0f);
  EXPECT_EQ(y.row<float>(0)[4], 0.0f);
  EXPECT_TRUE(std::isnan(y.row<float>(0)[5]));
}

// Two heads of q, k and v, and random features that all heads share.
struct FavorCase {
  static constexpr int kHeads = 2;
  FavorCase(int tokens, int head_dim, int num_features, double size)
      : num_tokens(tokens),
        q(DType::kF32, {tokens, kHeads * head_dim}, 2),
        k(DType::kF32, {tokens, kHeads * head_dim}, 1),
        v(DType::kF32, {tokens, kHeads * head_dim}),
        features(DType::kF32, {head_dim, num_features}),
        phi_q(DType::kF32, {tokens, kHeads * num_features}, 3),
        phi_k(DType::kF32, {tokens, kHeads * num_features}, 1),
        log_decay(DType::kF32, {tokens, kHeads}, 1),
        maximum(DType::kF32, {1, kHeads}) {
    Random random(40);
    random.FillNormal(q, size);
    random.FillNormal(k, size);
    random.FillNormal(v);
    random.FillNormal(features);
    maximum.Fill(1e30);  // what an earlier session left does not count
  }
  FavorArgs Queries(const Ragged& ragged, int first = 0) const {
    const int n = ragged.num_tokens();
    return {ragged.batch(), q.view().Rows(first, n), features, kHeads, phi_q.view().Rows(first, n), {}, {}};
  }
  FavorArgs Keys(const Ragged& ragged, int first = 0) const {
    const int n = ragged.num_tokens();
    return {ragged.batch(), k.view().Rows(first, n),        features, kHeads, phi_k.view().Rows(first, n),
            maximum,        log_decay.view().Rows(first, n)};
  }

  int num_tokens;
  Guarded q, k, v, features, phi_q, phi_k, log_decay, maximum;
};

TEST(Favor, EqualsReferenceAtOddSizes) {
  const auto device = CreateTestDevice(2);
  for (const int head_dim : {1, 7, 64}) {
    for (const int num_features : {1, 5, 64, 131}) {
      FavorCase c(40, head_dim, num_features, 1.0);
      const Ragged ragged({{40, 0, 0}});
      for (const bool keys : {false, true}) {
        const FavorArgs args = keys ? c.Keys(ragged) : c.Queries(ragged);
        std::vector<double> y(static_cast<size_t>(args.y.num_elements())), maximum(2), log_decay(80);
        FavorReference(args, y.data(), maximum.data(), log_decay.data());
        RunKernel(kFavor, args, *device);
        EXPECT_LT(Nmse(keys ? c.phi_k : c.phi_q, y), kNmseF32) << head_dim << " to " << num_features;
        if (!keys) continue;
        EXPECT_LT(Nmse(c.maximum, maximum), kNmseF32);
        EXPECT_LT(Nmse(c.log_decay, log_decay), kNmseF32);
      }
      EXPECT_TRUE(c.phi_q.RedZonesIntact() && c.phi_k.RedZonesIntact() && c.log_decay.RedZonesIntact());
    }
  }
}

TEST(Favor, AnyCutOfARunGivesTheSameBits) {
  const auto device = CreateTestDevice(2);
  FavorCase whole(70, 16, 33, 2.0);
  FavorCase cut(70, 16, 33, 2.0);
  RunKernel(kFavor, whole.Keys(Ragged({{70, 0, 0}})), *device);
  int done = 0;
  for (const int piece : {1, 2, 30, 37}) {
    RunKernel(kFavor, cut.Keys(Ragged({{piece, done, 0}}), done), *device);
    done += piece;
  }
  EXPECT_EQ(cut.phi_k.Bytes(), whole.phi_k.Bytes());
  EXPECT_EQ(cut.log_decay.Bytes(), whole.log_decay.Bytes());
  EXPECT_EQ(cut.maximum.Bytes(), whole.maximum.Bytes());
}

TEST(Favor, KeysOfManyRunsSomeWithoutTokensHoweverTheirRowsLie) {
  const auto device = CreateTestDevice(2);
  const Ragged ragged(ManyRuns());
  constexpr int kHeads = 3;
  for (const auto& [head_dim, num_features] : {std::pair{8, 36}, {6, 36}}) {
    std::vector<std::vector<std::byte>> results;
    for (const int padding : {0, 1}) {
      Guarded x(DType::kF32, {ragged.num_tokens(), kHeads * head_dim}, padding);
      Guarded features(DType::kF32, {head_dim, num_features}, padding);
      Guarded y(DType::kF32, {ragged.num_tokens(), kHeads * num_features}, padding);
      Guarded maximum(DType::kF32, {kManyRuns, kHeads}),
          log_decay(DType::kF32, {ragged.num_tokens(), kHeads}, 2);
      Random random(8);
      random.FillNormal(x);
      random.FillNormal(features);
      random.FillNormal(maximum);
      const FavorArgs args{ragged.batch(), x, features, kHeads, y, maximum, log_decay};
      std::vector<double> phi(static_cast<size_t>(y.view().num_elements()));
      std::vector<double> running = maximum.ToDoubles(),
                          decays(static_cast<size_t>(ragged.num_tokens() * kHeads));
      FavorReference(args, phi.data(), running.data(), decays.data());
      RunKernel(kFavor, args, *device);
      EXPECT_LT(Nmse(y, phi), kNmseF32);
      EXPECT_LT(Nmse(maximum, running), kNmseF32);
      EXPECT_LT(Nmse(log_decay, decays), kNmseF32);
      EXPECT_TRUE(y.RedZonesIntact() && maximum.RedZonesIntact() && log_decay.RedZonesIntact());
      results.push_back(y.Bytes());
      for (const std::vector<std::byte>& more : {maximum.Bytes(), log_decay.Bytes()})
        results.back().insert(results.back().end(), more.begin(), more.end());
    }
    EXPECT_EQ(results[0], results[1]) << head_dim << " to " << num_features;
  }
}

// Thousands of rows at once and a few at a time, a maximum carried through thousands of tokens.
TEST(Favor, LongRunsKeepTheirBitsWhenCut) {
  const auto device = CreateTestDevice(2);
  constexpr int kTokens = 1060;
  for (const auto& [head_dim, num_features] : {std::pair{4, 5}, {3, 100}, {4, 268}}) {
    FavorCase whole(kTokens, head_dim, num_features, 1.0);
    const Ragged ragged({{kTokens, 0, 0}});
    for (const bool keys : {false, true}) {
      const FavorArgs args = keys ? whole.Keys(ragged) : whole.Queries(ragged);
      std::vector<double> y(static_cast<size_t>(args.y.num_elements())), maximum(2), log_decay(2 * kTokens);
      FavorReference(args, y.data(), maximum.data(), log_decay.data());
      RunKernel(kFavor, args, *device);
      EXPECT_LT(Nmse(keys ? whole.phi_k : whole.phi_q, y), kNmseF32) << head_dim << " to " << num_features;
      if (!keys) continue;
      EXPECT_LT(Nmse(whole.maximum, maximum), kNmseF32);
      EXPECT_LT(Nmse(whole.log_decay, log_decay), kNmseF32);
    }
    FavorCase cut(kTokens, head_dim, num_features, 1.0);
    int done = 0;
    for (const int piece : {1, 40, 1019}) {
      RunKernel(kFavor, cut.Queries(Ragged({{piece, done, 0}}), done), *device);
      RunKernel(kFavor, cut.Keys(Ragged({{piece, done, 0}}), done), *device);
      done += piece;
    }
    EXPECT_EQ(cut.phi_q.Bytes(), whole.phi_q.Bytes()) << head_dim << " to " << num_features;
    EXPECT_EQ(cut.phi_k.Bytes(), whole.phi_k.Bytes()) << head_dim << " to " << num_features;
    EXPECT_EQ(cut.log_decay.Bytes(), whole.log_decay.Bytes());
    EXPECT_EQ(cut.maximum.Bytes(), whole.maximum.Bytes());
  }
}

// Performer against its own quadratic form in double precision, which needs no stabiliser: exponents of keys
// that rise by dozens on the way included.
TEST(Favor, WithTheRecurrenceEqualsTheQuadraticFormOfItsKernel) {
  const auto device = CreateTestDevice(2);
  const auto cpu = CreateCpuDevice(2);
  for (const double size : {1.0, 3.0}) {
    constexpr int kTokens = 150;
    constexpr int kDim = 16;
    constexpr int kFeatures = 40;
    FavorCase c(kTokens, kDim, kFeatures, size);
    const Ragged ragged({{kTokens, 0, 0}});
    RunKernel(kFavor, c.Queries(ragged), *device);
    RunKernel(kFavor, c.Keys(ragged), *device);
    Guarded s_outer(DType::kF32, {1, 2, kFeatures, kDim}), s_inner(DType::kF32, {1, 2, kFeatures, kDim});
    Guarded z_outer(DType::kF32, {1, 2, kFeatures}), z_inner(DType::kF32, {1, 2, kFeatures});
    for (Guarded* part : {&s_outer, &s_inner, &z_outer, &z_inner}) part->Fill(0.0);
    Guarded o(DType::kF32, {kTokens, 2 * kDim});
    LinearRecurrenceCpu({.batch = ragged.batch(),
                         .q = c.phi_q,
                         .k = c.phi_k,
                         .v = c.v,
                         .log_decay = c.log_decay,
                         .s_outer = s_outer,
                         .s_inner = s_inner,
                         .z_outer = z_outer,
                         .z_inner = z_inner,
                         .o = o,
                         .num_heads = 2,
                         .num_kv_heads = 2},
                        cpu->stream());
    const double root = std::pow(static_cast<double>(kDim), -0.25);
    const auto exponent = [&](const Guarded& x, int t, int h, int i) {
      double e = 0.0;
      for (int j = 0; j < kDim; ++j) {
        const double value = x.row<float>(t)[h * kDim + j] * root;
        e += value * c.features.row<float>(j)[i] - value * value / 2.0;
      }
      return e;
    };
    std::vector<double> expected;
    for (int t = 0; t < kTokens; ++t)
      for (int h = 0; h < 2; ++h) {
        std::vector<double> row(kDim, 0.0);
        double norm = 0.0;
        for (int s = 0; s <= t; ++s) {
          double kernel = 0.0;
          for (int i = 0; i < kFeatures; ++i)
            kernel += std::exp(exponent(c.q, t, h, i) + exponent(c.k, s, h, i));
          norm += kernel;
          for (int j = 0; j < kDim; ++j)
            row[static_cast<size_t>(j)] += kernel * c.v.row<float>(s)[h * kDim + j];
        }
        for (const double value : row) expected.push_back(value / norm);
      }
    // An exponent of dozens is rounded to some 1e-5, and its exponential by as much.
    EXPECT_LT(Nmse(o, expected), size > 1.0 ? 1e-7 : 1e-9) << "inputs of size " << size;
  }
}

}  // namespace
}  // namespace weir
