#include "model/weights/weight_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/safetensors_writer.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The bytes begin `shift` bytes into a buffer.
template <class T>
WeightTensor TensorAt(size_t shift, const std::vector<T>& values) {
  const std::string bytes = testing::BytesOf(values);
  std::shared_ptr<std::byte[]> buffer(new std::byte[bytes.size() + shift]);
  std::memcpy(buffer.get() + shift, bytes.data(), bytes.size());
  const std::span<const std::byte> data(buffer.get() + shift, bytes.size());
  return {"w", DTypeOf<T>::kValue, {static_cast<int64_t>(values.size())}, data, buffer};
}

TEST(WeightTensor, LOD_07_ConvertsAtEveryAlignment) {
  const std::vector<float> values = {1.5f, -0.25f, 3.0f, 65504.0f, -0.0f};
  std::vector<F16> halves;
  std::vector<BF16> brains;
  for (float value : values) {
    halves.push_back(F16::FromFloat(value));
    brains.push_back(BF16::FromFloat(value));
  }
  for (size_t shift = 0; shift < 8; ++shift) {
    EXPECT_EQ(TensorAt(shift, values).ToF32(), values);
    EXPECT_EQ(TensorAt(shift, halves).ToF32(), values);
    EXPECT_THAT(TensorAt(shift, brains).ToF32(), ElementsAre(1.5f, -0.25f, 3.0f, 65536.0f, -0.0f));
    EXPECT_EQ(TensorAt(shift, halves).At(1), -0.25f);
    float part[2];
    TensorAt(shift, brains).ToF32(1, part);
    EXPECT_THAT(part, ElementsAre(-0.25f, 3.0f));
  }
}

TEST(WeightTensor, CheckFiniteNamesTensorIndexAndValue) {
  EXPECT_TRUE(TensorAt<float>(0, {1.0f, 2.0f, std::numeric_limits<float>::max()}).CheckFinite().ok());
  EXPECT_TRUE(TensorAt<float>(0, {}).CheckFinite().ok());
  const absl::Status nan = TensorAt<float>(1, {1.0f, 2.0f, std::nanf("")}).CheckFinite();
  EXPECT_EQ(nan.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(nan.message()), HasSubstr("'w' of shape [3] holds nan at index 2"));
  const F16 infinity{0xfc00};
  EXPECT_THAT(std::string(TensorAt<F16>(0, {infinity}).CheckFinite().message()),
              HasSubstr("-inf at index 0"));
  const BF16 bf16_nan{0x7fc1};
  EXPECT_FALSE(TensorAt<BF16>(0, {BF16{0}, bf16_nan}).CheckFinite().ok());
}

TEST(WeightTensor, CopiesKeepTheBytesAlive) {
  WeightTensor copy;
  {
    const WeightTensor original = TensorAt<float>(0, {4.0f});
    copy = original;
  }
  EXPECT_EQ(copy.At(0), 4.0f);
}

}  // namespace
}  // namespace weir
