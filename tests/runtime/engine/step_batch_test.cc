// What a step's arrays say, padding included.
#include "runtime/engine/step_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/engine/decode_graphs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

template <class T>
std::vector<T> Values(const TensorView& view) {
  return {view.data<T>(), view.data<T>() + view.num_elements()};
}

TEST(StepBatch, PaddingIsRunsWithoutTokensThatNameNothing) {
  const auto device = CreateCpuDevice(1);
  StepBatch batch = *StepBatch::Create(8, 8, 8, 2, *device);
  const std::vector<int32_t> blocks = {5, 6};
  const int32_t tokens[] = {11, 12};
  // What a longer step leaves behind must not show.
  batch.AddRun(3, 9, std::vector<int32_t>(8, 77), blocks, 8);
  EXPECT_FALSE(batch.IsDecode());
  batch.Clear();
  batch.AddRun(4, 20, std::span(tokens, 1), blocks, 1);
  batch.AddRun(2, 17, std::span(tokens + 1, 1), blocks, 1);
  ASSERT_TRUE(batch.IsDecode());
  batch.PadDecode(4);
  batch.Upload(device->stream());
  const StepInput input = batch.Input();
  EXPECT_EQ(input.batch.num_tokens, 4);
  EXPECT_EQ(input.batch.num_seqs, 4);
  EXPECT_EQ(input.batch.max_seq_tokens, 1);
  EXPECT_THAT(Values<int32_t>(input.token_ids), ElementsAre(11, 12, 0, 0));
  EXPECT_THAT(Values<int32_t>(input.logit_rows), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(Values<int32_t>(input.batch.cu_seqlens), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(Values<int32_t>(input.batch.slots), ElementsAre(4, 2, -1, -1));
  EXPECT_THAT(Values<int64_t>(input.batch.positions), ElementsAre(20, 17, 0, 0));
  EXPECT_THAT(Values<int32_t>(input.batch.block_tables), ElementsAre(5, 6, 5, 6, -1, -1, -1, -1));
}

TEST(StepBatch, ArraysStayInTheirPlaceWhateverTheStep) {
  const auto device = CreateCpuDevice(1);
  StepBatch batch = *StepBatch::Create(8, 4, 4, 2, *device);
  batch.PadDecode(4);  // no run at all: what is recorded
  const StepInput recorded = batch.Input();
  batch.Clear();
  batch.AddRun(0, 0, std::vector<int32_t>(5, 1), {}, 0);
  const StepInput other = batch.Input();
  EXPECT_EQ(recorded.token_ids.raw(), other.token_ids.raw());
  EXPECT_EQ(recorded.logit_rows.raw(), other.logit_rows.raw());
  EXPECT_EQ(recorded.batch.cu_seqlens.raw(), other.batch.cu_seqlens.raw());
  EXPECT_EQ(recorded.batch.slots.raw(), other.batch.slots.raw());
  EXPECT_EQ(recorded.batch.positions.raw(), other.batch.positions.raw());
  EXPECT_EQ(recorded.batch.block_tables.raw(), other.batch.block_tables.raw());
}

TEST(StepBatch, OnlySingleTokensWithTheirLogitsAreADecodeStep) {
  const auto device = CreateCpuDevice(1);
  StepBatch batch = *StepBatch::Create(8, 4, 4, 0, *device);
  const int32_t token[] = {1};
  batch.AddRun(0, 0, token, {}, 1);
  EXPECT_TRUE(batch.IsDecode());
  batch.AddRun(1, 0, token, {}, 0);  // fed, but nobody wants its logits
  EXPECT_FALSE(batch.IsDecode());
}

TEST(DecodeGraphs, SizesGrowToTheLargestStep) {
  EXPECT_THAT(DecodeBatchSizes(1), ElementsAre(1));
  EXPECT_THAT(DecodeBatchSizes(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(DecodeBatchSizes(64), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(DecodeBatchSizes(200), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 192, 200));
  EXPECT_TRUE(DecodeBatchSizes(0).empty());
}

}  // namespace
}  // namespace weir
