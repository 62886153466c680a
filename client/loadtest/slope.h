// Slope: how many bytes each token adds, by least squares, with an interval that holds for memory.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace weir {

// Residuals of fewer points than these say little about what lies beside a line.
inline constexpr int64_t kLeastIntervalCount = 10;

struct SlopePoint {
  double x = 0;  // tokens
  double y = 0;  // bytes
};

// Of the line y = intercept + bytes_per_token x.
struct Slope {
  int64_t count = 0;  // points
  double span = 0;    // largest x less smallest x
  double intercept = 0;
  double bytes_per_token = 0;
  double standard_error = 0;
  // As many independent points would say as much as these: memory moves in steps, and a point that lies
  // beside the line has its neighbours on the same side. At most `count`, at least 3.5.
  double effective_count = 0;
  // The 95 % interval, two-sided: the true slope is above `high` in one case of forty.
  double low = 0;
  double high = 0;
  bool flat = false;     // all points have the same y
  bool counted = false;  // y is what somebody counts to the byte, and no measurement; for the caller to set

  // What is counted and does not move is so, however few readings there are.
  bool exact() const { return counted && flat; }
  // Whether `low` and `high` say anything.
  bool has_interval() const { return exact() || count >= kLeastIntervalCount; }
};

// Ordinary least squares. The standard error and the degrees of freedom are those of effective_count points,
//     n_eff = n (1 - r) / (1 + r),  se^2 = (sum of squared residuals / (n_eff - 2)) / sum (x - mean)^2,
// where r is the lag-1 autocorrelation of the residuals, freed of its bias and not below 0: the adjustment
// for trends of Santer et al., "Statistical significance of trends and trend differences in layer-average
// atmospheric temperature time series", J. Geophys. Res. 105 (2000). A single step of the height h in the
// middle of the points then reaches up to 6 h / span, where as many independent points would swear to a slope
// of 1.5 h / span.
//
// The points are in order of x. INVALID_ARGUMENT with fewer than three, or where all have the same x.
absl::StatusOr<Slope> FitSlope(std::span<const SlopePoint> points);

enum class SlopeVerdict {
  kBelow,     // high < limit
  kAbove,     // low >= limit
  kUndecided  // the limit lies in the interval
};
SlopeVerdict JudgeSlope(const Slope& slope, double limit);

// Tokens by which the span has to grow until `high` is below `limit`, should the true slope be 0 and what
// lies beside the line be no larger than so far: the interval then shrinks at least as the span grows.
// Rounded up to two digits; 0 where it is below already.
double MissingTokens(const Slope& slope, double limit);

// The p-quantile of Student's t distribution, 0 < p < 1, by bisection of its distribution function, which is
// an incomplete beta function (A&S 26.7.1) by its continued fraction (DLMF 8.17.22). `degrees` need not be
// whole.
double StudentQuantile(double p, double degrees);

}  // namespace weir
