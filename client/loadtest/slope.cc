#include "client/loadtest/slope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/status/status.h"

namespace weir {
namespace {

constexpr double kUpperQuantile = 0.975;  // two-sided 95 %
// One step of the height h in the middle of many points then has its upper end at 6 h / span. As a single
// event of a Poisson process it would have it at 5.6: half of the 97.5 % quantile of chi squared with 4
// degrees of freedom.
constexpr double kLeastEffectiveCount = 3.5;

// The continued fraction of DLMF 8.17.22, by the modified Lentz method: it converges fast for x <
// (a+1)/(a+b+2).
double BetaFraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  constexpr int kMostTerms = 100000;
  double fraction = 1, numerator = 1, denominator = 0;
  for (int i = 0; i <= kMostTerms; ++i) {
    const double m = i / 2;
    double term = 1;
    if (i > 0 && i % 2 == 0) term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    if (i % 2 == 1) term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    denominator = 1 + term * denominator;
    if (std::abs(denominator) < kTiny) denominator = kTiny;
    denominator = 1 / denominator;
    numerator = 1 + term / numerator;
    if (std::abs(numerator) < kTiny) numerator = kTiny;
    fraction *= numerator * denominator;
    if (std::abs(numerator * denominator - 1) < 1e-15) break;
  }
  return fraction - 1;
}

// I_x(a, b), regularised.
double IncompleteBeta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - IncompleteBeta(1 - x, b, a);
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  return std::exp(log_front) / a * BetaFraction(x, a, b);
}

// P(T > t) for t >= 0.
double StudentTail(double t, double degrees) {
  return IncompleteBeta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2;
}

// Lag-1 autocorrelation of the residuals of a fitted line, 0 to 1. Its expectation is about rho - (2 + 4 rho)
// / n, as the line follows what it is fitted to.
double Autocorrelation(std::span<const double> residuals, double sum_of_squares) {
  const auto n = static_cast<double>(residuals.size());
  if (sum_of_squares <= 0 || n <= 4) return 0;
  double products = 0;
  for (size_t i = 1; i < residuals.size(); ++i) products += residuals[i - 1] * residuals[i];
  return std::clamp((products / sum_of_squares + 2 / n) / (1 - 4 / n), 0.0, 1.0);
}

}  // namespace

double StudentQuantile(double p, double degrees) {
  if (p < 0.5) return -StudentQuantile(1 - p, degrees);
  double low = 0, high = 1;
  while (StudentTail(high, degrees) > 1 - p && std::isfinite(high)) high *= 2;
  for (int i = 0; i < 100 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    (StudentTail(middle, degrees) > 1 - p ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

absl::StatusOr<Slope> FitSlope(std::span<const SlopePoint> points) {
  if (points.size() < 3) return absl::InvalidArgumentError("a slope with an interval needs three points");
  const auto n = static_cast<double>(points.size());
  // Counted from the first point: differences of whole numbers are exact, so that equal values have no
  // variance.
  const SlopePoint first = points.front();
  double mean_x = 0, mean_y = 0;
  for (const SlopePoint& point : points) {
    mean_x += (point.x - first.x) / n;
    mean_y += (point.y - first.y) / n;
  }
  double xx = 0, xy = 0;
  const auto [least, most] = std::minmax_element(
      points.begin(), points.end(), [](const SlopePoint& a, const SlopePoint& b) { return a.x < b.x; });
  for (const SlopePoint& point : points) {
    const double dx = point.x - first.x - mean_x;
    xx += dx * dx;
    xy += dx * (point.y - first.y - mean_y);
  }
  Slope slope;
  slope.flat =
      std::all_of(points.begin(), points.end(), [&](const SlopePoint& point) { return point.y == first.y; });
  slope.count = static_cast<int64_t>(points.size());
  slope.span = most->x - least->x;
  if (slope.span <= 0) return absl::InvalidArgumentError("all points of the slope are at the same token");
  slope.bytes_per_token = xy / xx;
  slope.intercept = first.y + mean_y - slope.bytes_per_token * (first.x + mean_x);

  std::vector<double> residuals;
  double squares = 0;
  for (const SlopePoint& point : points) {
    residuals.push_back(point.y - first.y - mean_y - slope.bytes_per_token * (point.x - first.x - mean_x));
    squares += residuals.back() * residuals.back();
  }
  const double r = Autocorrelation(residuals, squares);
  slope.effective_count = std::max(std::min(n, kLeastEffectiveCount), n * (1 - r) / (1 + r));
  const double degrees = slope.effective_count - 2;
  slope.standard_error = std::sqrt(squares / degrees / xx);
  const double half = StudentQuantile(kUpperQuantile, degrees) * slope.standard_error;
  slope.low = slope.bytes_per_token - half;
  slope.high = slope.bytes_per_token + half;
  return slope;
}

SlopeVerdict JudgeSlope(const Slope& slope, double limit) {
  if (slope.high < limit) return SlopeVerdict::kBelow;
  return slope.low >= limit ? SlopeVerdict::kAbove : SlopeVerdict::kUndecided;
}

double MissingTokens(const Slope& slope, double limit) {
  if (slope.high < limit) return 0;
  const double missing = std::max(slope.span * (slope.high / limit - 1), 1.0);
  const double unit = std::pow(10, std::floor(std::log10(missing)) - 1);
  return std::max(1.0, std::ceil(missing / unit) * unit);
}

}  // namespace weir
