#include "runtime/tensor/dtype.h"

#include <gtest/gtest.h>

#include "runtime/tensor/tensor.h"

namespace weir {
namespace {

TEST(DType, EveryF16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 half = {static_cast<uint16_t>(bits)};
    const float value = half.ToFloat();
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(F16::FromFloat(value).ToFloat()));
    else
      EXPECT_EQ(F16::FromFloat(value).bits, half.bits);
  }
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(F16::FromFloat(1.0f).bits, 0x3c00);
  EXPECT_EQ(F16::FromFloat(1.0f + 0x1p-11f).bits, 0x3c00);      // tie to even
  EXPECT_EQ(F16::FromFloat(1.0f + 3 * 0x1p-11f).bits, 0x3c02);  // tie to even
  EXPECT_EQ(F16::FromFloat(65504.0f).bits, 0x7bff);
  EXPECT_EQ(F16::FromFloat(65519.0f).bits, 0x7bff);
  EXPECT_EQ(F16::FromFloat(65520.0f).bits, 0x7c00);
  EXPECT_EQ(F16::FromFloat(0x1p-24f).bits, 1);
  EXPECT_EQ(F16::FromFloat(0x1p-26f).bits, 0);
  EXPECT_EQ(F16::FromFloat(-0x1p-14f).bits, 0x8400);
}

TEST(DType, BF16RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(BF16::FromFloat(1.0f + 0x1p-8f).ToFloat(), 1.0f);
  EXPECT_EQ(BF16::FromFloat(1.0f + 3 * 0x1p-8f).ToFloat(), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(BF16::FromFloat(std::bit_cast<float>(0x7f800001u)).ToFloat()));
  EXPECT_TRUE(std::isinf(BF16::FromFloat(3.4e38f).ToFloat()));
}

TEST(TensorView, ColumnsAndRowsKeepTheStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const TensorView view(data, DType::kF32, {3, 4});
  const TensorView part = view.Columns(1, 2).Rows(1, 2);
  EXPECT_EQ(part.num_rows(), 2);
  EXPECT_EQ(part.row_size(), 2);
  EXPECT_EQ(part.row<float>(0)[0], 5.0f);
  EXPECT_EQ(part.row<float>(1)[1], 10.0f);
}

}  // namespace
}  // namespace weir
