// When requests are due.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/time/time.h"

namespace weir {

enum class ArrivalKind {
  kClosed,    // as many at a time as there are users: the next one when the last one has ended
  kConstant,  // open loop: at even distances
  kPoisson,   // open loop: exponential gaps, as of many independent users
};

std::string_view ArrivalName(ArrivalKind kind);

// The open loop's times: known before anything is sent, whatever the server does. One thread.
class OpenArrivals {
 public:
  // kConstant or kPoisson; `rate` per second. The first constant one is due at 0.
  OpenArrivals(ArrivalKind kind, double rate, uint64_t seed) : kind_(kind), rate_(rate), seed_(seed) {}

  // Time of the next one, since the start.
  absl::Duration Next();

 private:
  const ArrivalKind kind_;
  const double rate_;
  const uint64_t seed_;
  uint64_t index_ = 0;
  double gaps_ = 0;  // Poisson: the sum so far, in mean gaps
};

}  // namespace weir
