// A recorded step (a CUDA graph) is padded: runs without tokens at the end of the batch, and rows of tokens
// beyond the last run. Neither may change a bit of the others or touch a state.
#include "gtest/gtest.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/rope/rope.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/ragged.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr int kTokens = 3;
constexpr int kPaddedTokens = 7;
constexpr int kSlots = 8;

class PaddedBatch : public testing::Test {
 protected:
  // The same tokens, without padding and with it.
  RaggedBatch Batch(bool padded) const {
    RaggedBatch batch = padded ? padded_.batch() : plain_.batch();
    if (padded) batch.num_tokens = kPaddedTokens;
    return batch;
  }
  static int Rows(bool padded) { return padded ? kPaddedTokens : kTokens; }

  std::unique_ptr<Device> device_ = CreateTestDevice(1);
  Ragged plain_{{{1, 0, 4}, {1, 33'000'001, 6}, {1, 9, 1}}};
  Ragged padded_{{{1, 0, 4}, {1, 33'000'001, 6}, {1, 9, 1}, {0, 0, 2}, {0, 5, 0}, {0, 0, 3}, {0, 0, 7}}};
};

TEST_F(PaddedBatch, Rope) {
  Guarded inv_freq(DType::kF32, {4}), x(DType::kF32, {kPaddedTokens, 16}), alone(DType::kF32, {kTokens, 16});
  inv_freq.Assign({1.0, 0.1, 0.01, 0.001});
  Random(1).FillNormal(x);
  Random(1).FillNormal(alone);
  RunKernel(kRope, {Batch(false), alone, inv_freq, 2}, *device_);
  RunKernel(kRope, {Batch(true), x, inv_freq, 2}, *device_);
  std::vector<std::byte> bytes = x.Bytes();
  bytes.resize(alone.Bytes().size());
  EXPECT_EQ(bytes, alone.Bytes());
}

TEST_F(PaddedBatch, ShortConv) {
  Guarded weight(DType::kF32, {4, 12}), bias(DType::kF32, {12});
  Random(1).FillNormal(weight);
  Random(2).FillNormal(bias);
  std::vector<std::vector<std::byte>> outputs, windows;
  for (const bool padded : {false, true}) {
    Guarded x(DType::kF32, {Rows(padded), 12}), y(DType::kF32, {Rows(padded), 12});
    Guarded window(DType::kF32, {kSlots, 3, 12});
    Random(3).FillNormal(x);
    Random(4).FillNormal(window);
    RunKernel(kShortConv, {Batch(padded), x, weight, bias, window, y, true}, *device_);
    outputs.push_back(y.Bytes());
    outputs.back().resize(kTokens * 12 * sizeof(float));
    windows.push_back(window.Bytes());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(windows[0], windows[1]);
}

TEST_F(PaddedBatch, Favor) {
  Guarded features(DType::kF32, {8, 20});
  Random(1).FillNormal(features);
  std::vector<std::vector<std::byte>> outputs, maxima, decays;
  for (const bool padded : {false, true}) {
    Guarded x(DType::kF32, {Rows(padded), 16}), y(DType::kF32, {Rows(padded), 40});
    Guarded maximum(DType::kF32, {kSlots, 2}), log_decay(DType::kF32, {Rows(padded), 2});
    Random(3).FillNormal(x);
    Random(4).FillNormal(maximum);
    RunKernel(kFavor, {Batch(padded), x, features, 2, y, maximum, log_decay}, *device_);
    outputs.push_back(y.Bytes());
    outputs.back().resize(kTokens * 40 * sizeof(float));
    maxima.push_back(maximum.Bytes());
    decays.push_back(log_decay.Bytes());
    decays.back().resize(kTokens * 2 * sizeof(float));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(maxima[0], maxima[1]);
  EXPECT_EQ(decays[0], decays[1]);
}

}  // namespace
}  // namespace weir
