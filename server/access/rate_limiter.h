// TokenBucket: so many requests a second on the average, and so many at once.
#pragma once

#include "absl/time/time.h"

namespace weir {

// One thread at a time; time is an argument. Rate and burst are too, so that they may change between
// requests.
class TokenBucket {
 public:
  // Takes one of the tokens, which grow by `rate` a second up to `burst` (at least 1; full at first). Zero
  // when there was one, else the time until there is, and nothing is taken. A clock that steps back adds
  // nothing.
  absl::Duration Take(double rate, double burst, absl::Time now);

 private:
  bool used_ = false;
  double tokens_ = 0;
  absl::Time last_;
};

}  // namespace weir
