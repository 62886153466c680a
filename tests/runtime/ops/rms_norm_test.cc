#include "runtime/ops/rms_norm/rms_norm.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

std::vector<double> Expected(const RmsNormArgs& args) {
  std::vector<double> y(static_cast<size_t>(args.x.num_elements()));
  RmsNormReference(args, y.data());
  return y;
}

TEST(RmsNorm, EqualsReferenceAtOddSizesWithGroupsGateAndPaddedRows) {
  const auto device = CreateTestDevice(2);
  for (const int width : {1, 3, 16, 37, 64, 129, 576}) {
    for (const int groups : {1, 3}) {
      for (const bool gated : {false, true}) {
        const int tokens = width < 100 ? 5 : 70;
        Random random(static_cast<uint64_t>(width * 10 + groups));
        Guarded x(DType::kF32, {tokens, groups * width}, 3);
        Guarded gate(DType::kF32, {tokens, groups * width}, 5);
        Guarded weight(DType::kF32, {width});
        Guarded y(DType::kF32, {tokens, groups * width}, 1);
        random.FillNormal(x, 3.0);
        random.FillNormal(gate, 4.0);
        random.FillUniform(weight, 0.5, 1.5);
        const RmsNormArgs args{x, weight, gated ? gate.view() : TensorView(), y, 1e-5f};
        RunKernel(kRmsNorm, args, *device);
        EXPECT_LT(Nmse(y, Expected(args)), kNmseF32) << "width " << width << " groups " << groups;
        EXPECT_TRUE(y.RedZonesIntact());
      }
    }
  }
}

// Mamba-2's norm: the gate first, a weight for every column, each group on its own.
TEST(RmsNorm, GateFirstWithAWeightForEveryColumn) {
  const auto device = CreateTestDevice(2);
  for (const int width : {1, 5, 37, 192}) {
    for (const int groups : {1, 2, 3}) {
      for (const bool gate_first : {false, true}) {
        Random random(static_cast<uint64_t>(width + groups));
        Guarded x(DType::kF32, {7, groups * width}, 3);
        Guarded gate(DType::kF32, {7, groups * width}, 5);
        Guarded weight(DType::kF32, {groups * width});
        Guarded y(DType::kF32, {7, groups * width}, 1);
        random.FillNormal(x, 3.0);
        random.FillNormal(gate, 4.0);
        random.FillUniform(weight, 0.5, 1.5);
        RmsNormArgs args{x, weight, gate, y, 1e-5f};
        args.group_width = width;
        args.gate_first = gate_first;
        const std::vector<double> expected = Expected(args);
        RunKernel(kRmsNorm, args, *device);
        EXPECT_LT(Nmse(y, expected), kNmseF32) << "width " << width << " groups " << groups;
        args.y = x;
        RunKernel(kRmsNorm, args, *device);
        EXPECT_EQ(x.Bytes(), y.Bytes());
        EXPECT_TRUE(x.RedZonesIntact() && y.RedZonesIntact());
      }
    }
  }
}

TEST(RmsNorm, WritesInPlaceAndKnowsAHandComputedRow) {
  const auto device = CreateTestDevice(1);
  Guarded x(DType::kF32, {1, 2});
  Guarded weight(DType::kF32, {2});
  x.Assign({3.0, 4.0});
  weight.Assign({1.0, 2.0});
  RunKernel(kRmsNorm, {x, weight, TensorView(), x, 0.0f}, *device);
  // mean of squares 12.5.
  EXPECT_NEAR(x.row<float>(0)[0], 3.0 / std::sqrt(12.5), 1e-6);
  EXPECT_NEAR(x.row<float>(0)[1], 8.0 / std::sqrt(12.5), 1e-6);
}

TEST(RmsNorm, RowsKeepTheirBitsInAnyBatchAndThreadCount) {
  const int num_tokens = SlowKernels() ? 21 : 200;
  constexpr int kWidth = 333;
  Random random(7);
  Guarded x(DType::kF32, {num_tokens, kWidth});
  Guarded weight(DType::kF32, {kWidth});
  Guarded one(DType::kF32, {num_tokens, kWidth});
  Guarded many(DType::kF32, {num_tokens, kWidth});
  random.FillNormal(x);
  random.FillNormal(weight);
  const auto alone = CreateTestDevice(1);
  const auto crowd = CreateTestDevice(4);
  for (int t = 0; t < num_tokens; ++t)
    RunKernel(kRmsNorm, {x.view().Rows(t, 1), weight, TensorView(), one.view().Rows(t, 1)}, *alone);
  RunKernel(kRmsNorm, {x, weight, TensorView(), many}, *crowd);
  EXPECT_EQ(one.Bytes(), many.Bytes());
}

// Widths on both sides of where a kernel may change its way, in rows that begin at vectors and in rows that
// do not.
TEST(RmsNorm, AnyWidthHasTheSameBitsHoweverItsRowsLie) {
  const auto device = CreateTestDevice(2);
  for (const int width : {4, 256, 260, 1024, 1028, 1537, 8192, 8204}) {
    for (const int gate_way : {0, 1, 2}) {
      if (gate_way > 0 && width % 256 == 0) continue;
      std::vector<std::vector<std::byte>> results;
      for (const int padding : {0, 1}) {
        Guarded x(DType::kF32, {3, 2 * width}, padding), gate(DType::kF32, {3, 2 * width}, padding);
        Guarded y(DType::kF32, {3, 2 * width}, padding), weight(DType::kF32, {2 * width});
        Random random(static_cast<uint64_t>(width));
        random.FillNormal(x, 3.0);
        random.FillNormal(gate, 4.0);
        random.FillUniform(weight, 0.5, 1.5);
        RmsNormArgs args{x, weight, gate_way > 0 ? gate.view() : TensorView(), y, 1e-5f};
        args.group_width = width;
        args.gate_first = gate_way == 2;
        RunKernel(kRmsNorm, args, *device);
        EXPECT_LT(Nmse(y, Expected(args)), kNmseF32) << "width " << width << " gate " << gate_way;
        EXPECT_TRUE(y.RedZonesIntact());
        results.push_back(y.Bytes());
      }
      EXPECT_EQ(results[0], results[1]) << "width " << width << " gate " << gate_way;
    }
  }
}

TEST(RmsNorm, NonFiniteRowsStayAlone) {
  const auto device = CreateTestDevice(2);
  Random random(3);
  Guarded x(DType::kF32, {3, 40});
  Guarded weight(DType::kF32, {40});
  Guarded y(DType::kF32, {3, 40});
  random.FillNormal(x);
  random.FillNormal(weight);
  x.row<float>(1)[17] = std::numeric_limits<float>::quiet_NaN();
  RunKernel(kRmsNorm, {x, weight, TensorView(), y}, *device);
  for (int c = 0; c < 40; ++c) {
    EXPECT_TRUE(std::isfinite(y.row<float>(0)[c]));
    EXPECT_TRUE(std::isnan(y.row<float>(1)[c]));
    EXPECT_TRUE(std::isfinite(y.row<float>(2)[c]));
  }
}

}  // namespace
}  // namespace weir
