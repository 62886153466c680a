#include <cstring>

#include "gtest/gtest.h"
#include "runtime/engine/sampler.h"

namespace weir {
namespace {

TEST(TokenHistory, SMP_10_SurvivesACopyOfItsBytes) {
  TokenHistory history;
  for (int i = 0; i < 1000; ++i) history.Add(i, i % 3 == 0);
  TokenHistory restored;
  std::memcpy(&restored, &history, sizeof(restored));
  EXPECT_EQ(restored.size, 256u);
  for (uint32_t age = 0; age < restored.size; ++age) {
    EXPECT_EQ(restored.IdAt(age), static_cast<int32_t>(999 - age));
    EXPECT_EQ(restored.IsOutputAt(age), (999 - age) % 3 == 0);
  }
}

TEST(TokenHistory, DamagedBytesAreRefused) {
  TokenHistory history;
  EXPECT_TRUE(history.IsValid(10));
  for (int i = 0; i < 5; ++i) history.Add(i, false);
  EXPECT_TRUE(history.IsValid(10));
  EXPECT_FALSE(history.IsValid(4)) << "an id outside the vocabulary";
  for (const auto& [next, size] : {std::pair(5, 257), {256, 256}, {256, 5}, {9, 5}}) {
    TokenHistory damaged = history;
    damaged.next = static_cast<uint32_t>(next);
    damaged.size = static_cast<uint32_t>(size);
    EXPECT_FALSE(damaged.IsValid(10)) << next << " " << size;
  }
}

}  // namespace
}  // namespace weir
