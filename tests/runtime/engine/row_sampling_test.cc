// The rows of a step on a device that samples; CUDA column only.
#include "runtime/engine/row_sampling.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/kernel_parity.h"
#include "tests/support/test_column.h"

namespace weir {
namespace {

constexpr int kVocab = 131;
constexpr int kNumIds = 120;
constexpr int kRows = 12;

class RowSamplingTest : public ::testing::Test {
 protected:
  RowSamplingTest() : device_(CreateTestDevice()), host_(kRows * kVocab, -1.0f), sampler_(kVocab, kNumIds) {
    Random random(1);
    for (int i = 0; i < kRows * kVocab; ++i) logits_.push_back(static_cast<float>(2 * random.Normal()));
    auto sampling = RowSampling::Create(kRows, kNumIds, *device_);
    WEIR_CHECK(sampling.ok());
    sampling_ = std::make_unique<RowSampling>(*std::move(sampling));
    auto buffer = device_->Allocate(static_cast<int64_t>(logits_.size() * sizeof(float)));
    WEIR_CHECK(buffer.ok());
    buffer_ = *std::move(buffer);
  }

  void Run() {
    Stream& stream = device_->stream();
    stream.CopyToDevice(buffer_.data(), logits_.data(), buffer_.bytes());
    sampling_->Run(TensorView(buffer_.data(), DType::kF32, {kRows, kVocab}), host_.data(), stream);
    const absl::Status status = stream.Synchronize();
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<float> Row(int row) const {
    return {logits_.begin() + row * kVocab, logits_.begin() + (row + 1) * kVocab};
  }
  SampleResult OnHost(int row, const SamplingParams& params, uint64_t token_index,
                      const std::vector<int32_t>& suppressed = {}) {
    std::vector<float> copy = Row(row);
    return sampler_.Sample(copy, params, {}, token_index, suppressed);
  }

  std::unique_ptr<Device> device_;
  std::vector<float> logits_, host_;
  Sampler sampler_;
  DeviceBuffer buffer_;
  std::unique_ptr<RowSampling> sampling_;
};

TEST_F(RowSamplingTest, EachRowGoesWhereItCanBeSampled) {
  SamplingParams plain;
  plain.temperature = 0.9f;
  plain.seed = 77;
  plain.logprobs = true;
  SamplingParams filtered = plain;
  filtered.top_k = 30;
  filtered.top_p = 0.9f;
  SamplingParams biased = plain;
  biased.logit_bias = {{3, 1.0f}};
  SamplingParams penalised = plain;
  penalised.repetition_penalty = 1.2f;
  SamplingParams alternatives = plain;
  alternatives.top_logprobs = 2;
  const std::vector<int32_t> few = {0, 5};
  const std::vector<int32_t> many(kMaxRowSuppressed + 1, 7);
  const std::vector<int32_t> none;
  struct Wanted {
    int row;
    const SamplingParams* params;
    const std::vector<int32_t>* suppressed;
    bool on_host;
  };
  // Twice: the second step must find nothing of the first.
  for (const std::vector<Wanted>& step :
       {std::vector<Wanted>{{0, &plain, &none, false},
                            {1, &biased, &none, true},
                            {2, &penalised, &none, true},
                            {4, &filtered, &few, false},
                            {5, &alternatives, &none, true},
                            {9, &plain, &many, true},
                            {11, &plain, &few, false}},
        std::vector<Wanted>{
            {0, &biased, &none, true}, {1, &plain, &none, false}, {9, &filtered, &none, false}}}) {
    std::fill(host_.begin(), host_.end(), -1.0f);
    sampling_->Clear();
    for (const Wanted& w : step) sampling_->Add(w.row, *w.params, 10 + w.row, *w.suppressed);
    Run();
    std::vector<bool> copied(kRows);
    for (const Wanted& w : step) {
      EXPECT_EQ(sampling_->IsOnHost(w.row), w.on_host) << w.row;
      copied[w.row] = w.on_host;
      if (w.on_host) continue;
      const SampleResult result = sampling_->Result(w.row);
      const SampleResult expected = OnHost(w.row, *w.params, 10 + w.row, *w.suppressed);
      EXPECT_TRUE(result.finite && !result.no_candidate);
      EXPECT_EQ(result.token, expected.token) << w.row;
      EXPECT_NEAR(result.logprob, expected.logprob, 1e-5);
    }
    for (int row = 0; row < kRows; ++row)
      for (int i = 0; i < kVocab; ++i)
        ASSERT_EQ(host_[row * kVocab + i], copied[row] ? logits_[row * kVocab + i] : -1.0f) << row;
  }
}

TEST_F(RowSamplingTest, ScoresAndFailures) {
  logits_[3 * kVocab + 50] = std::numeric_limits<float>::quiet_NaN();
  logits_[4 * kVocab + 125] = std::numeric_limits<float>::quiet_NaN();  // padding
  SamplingParams greedy;
  greedy.temperature = 0;
  for (int row = 0; row < 5; ++row) sampling_->AddTarget(row, 7 * row);
  sampling_->Add(5, greedy, 0, {});
  Run();
  for (const int row : {0, 1, 2, 4}) {
    const TargetScore expected = sampler_.ScoreOf(Row(row), 7 * row);
    EXPECT_NEAR(sampling_->Score(row).logprob, expected.logprob, 1e-5);
    EXPECT_EQ(sampling_->Score(row).rank, expected.rank);
  }
  EXPECT_TRUE(std::isnan(sampling_->Score(3).logprob));
  EXPECT_EQ(sampling_->Result(5).token, OnHost(5, greedy, 0).token);
  sampling_->Clear();
  sampling_->Add(3, greedy, 0, {});
  Run();
  EXPECT_FALSE(sampling_->Result(3).finite);
  sampling_->Clear();
  Run();  // a step without logits
}

}  // namespace
}  // namespace weir
