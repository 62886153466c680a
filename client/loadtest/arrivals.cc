#include "client/loadtest/arrivals.h"

#include <cmath>

#include "client/loadtest/seeded_draws.h"

namespace weir {

std::string_view ArrivalName(ArrivalKind kind) {
  switch (kind) {
    case ArrivalKind::kConstant:
      return "constant";
    case ArrivalKind::kPoisson:
      return "poisson";
    case ArrivalKind::kClosed:
      break;
  }
  return "closed";
}

absl::Duration OpenArrivals::Next() {
  double gaps = static_cast<double>(index_);
  if (kind_ == ArrivalKind::kPoisson)
    gaps = gaps_ += SeededDraws(seed_, SeededDraws::Purpose::kArrival, index_).Exponential();
  ++index_;
  return absl::Nanoseconds(std::llround(gaps / rate_ * 1e9));
}

}  // namespace weir
