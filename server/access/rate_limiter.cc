#include "server/access/rate_limiter.h"

#include <algorithm>

namespace weir {

absl::Duration TokenBucket::Take(double rate, double burst, absl::Time now) {
  if (!used_) {
    used_ = true;
    tokens_ = burst;
  } else {
    const double elapsed = std::max(0.0, absl::ToDoubleSeconds(now - last_));
    tokens_ = std::min(burst, tokens_ + elapsed * rate);
  }
  last_ = now;
  // What rounding took away must not cost a client that waited as told another round.
  constexpr double kWhole = 1 - 1e-6;
  if (tokens_ < kWhole) return absl::Ceil(absl::Seconds((1 - tokens_) / rate), absl::Milliseconds(1));
  tokens_ = std::max(0.0, tokens_ - 1);
  return absl::ZeroDuration();
}

}  // namespace weir
