// TokenBucket against a clock of the test's own.
#include "server/access/rate_limiter.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

const absl::Time kFirstCall = absl::FromUnixSeconds(1'700'000'000);

TEST(TokenBucket, ABurstGoesThroughAndThenTheRateHolds) {
  TokenBucket bucket;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bucket.Take(2, 5, kFirstCall), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(2, 5, kFirstCall), absl::Milliseconds(500));
  EXPECT_EQ(bucket.Take(2, 5, kFirstCall + absl::Milliseconds(250)), absl::Milliseconds(250));
  EXPECT_EQ(bucket.Take(2, 5, kFirstCall + absl::Milliseconds(500)), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(2, 5, kFirstCall + absl::Milliseconds(500)), absl::Milliseconds(500));
}

TEST(TokenBucket, WhoWaitsAsToldIsLetThrough) {
  for (const double rate : {0.001, 0.3, 1.0, 7.0, 1000.0 / 3}) {
    TokenBucket bucket;
    absl::Time now = kFirstCall;
    EXPECT_EQ(bucket.Take(rate, 1, now), absl::ZeroDuration());
    for (int i = 0; i < 100; ++i) {
      const absl::Duration wait = bucket.Take(rate, 1, now);
      ASSERT_GT(wait, absl::ZeroDuration());
      now += wait;
      ASSERT_EQ(bucket.Take(rate, 1, now), absl::ZeroDuration()) << rate << " " << i;
    }
    // The time for a hundred more, and no less but for the rounding of each wait to a millisecond.
    EXPECT_GE(now - kFirstCall, absl::Seconds(99.9 / rate));
  }
}

TEST(TokenBucket, NoMoreThanTheBurstIsSaved) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.Take(10, 3, kFirstCall), absl::ZeroDuration());
  const absl::Time later = kFirstCall + absl::Hours(24 * 365);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(10, 3, later), absl::ZeroDuration());
  EXPECT_GT(bucket.Take(10, 3, later), absl::ZeroDuration());
}

TEST(TokenBucket, AClockThatStepsBackNeitherGivesNorStalls) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.Take(1, 1, kFirstCall), absl::ZeroDuration());
  const absl::Time back = kFirstCall - absl::Hours(1);
  EXPECT_EQ(bucket.Take(1, 1, back), absl::Seconds(1));
  EXPECT_EQ(bucket.Take(1, 1, back + absl::Seconds(1)), absl::ZeroDuration());
}

TEST(TokenBucket, NewRatesHoldFromTheNextRequest) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.Take(1, 1, kFirstCall), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(100, 10, kFirstCall + absl::Milliseconds(10)), absl::ZeroDuration());
  EXPECT_EQ(bucket.Take(1, 1, kFirstCall + absl::Milliseconds(10)), absl::Seconds(1));
}

}  // namespace
}  // namespace weir
