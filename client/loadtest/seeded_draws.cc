#include "client/loadtest/seeded_draws.h"

#include <cmath>

namespace weir {
namespace {

constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;
constexpr double kLn2High = 0x1.62e42feep-1;  // 33 bits, so that products with an exponent are exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

SeededDraws::SeededDraws(uint64_t seed, Purpose purpose, uint64_t index)
    : state_(Mix(Mix(Mix(seed + kGoldenGamma) + static_cast<uint64_t>(purpose)) + index)) {}

uint64_t SeededDraws::Bits() { return Mix(state_ += kGoldenGamma); }

uint64_t SeededDraws::Below(uint64_t n) {
  // Draws beyond the last whole multiple of n are thrown away: 2^64 mod n of them.
  const uint64_t surplus = (0 - n) % n;
  for (;;)
    if (const uint64_t bits = Bits(); bits >= surplus) return bits % n;
}

double SeededDraws::Exponential() { return -PortableLog(1.0 - Unit()); }

double SeededDraws::Normal() {
  for (;;) {
    const double x = 2 * Unit() - 1;
    const double y = 2 * Unit() - 1;
    const double r = x * x + y * y;
    if (r > 0 && r < 1) return x * std::sqrt(-2 * PortableLog(r) / r);
  }
}

double PortableLog(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // x = m 2^exponent, 0.5 <= m < 1
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: eleven terms of the series.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  const double e = exponent;
  return e * kLn2High + (2 * s * sum + e * kLn2Low);
}

double PortableExp(double x) {
  const double k = std::floor(x / (kLn2High + kLn2Low) + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| < 0.35
  double sum = 1;
  for (int n = 14; n >= 1; --n) sum = 1 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(k));
}

}  // namespace weir
