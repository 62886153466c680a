// SeededDraws: random numbers that are the same on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace weir {

// The numbers are a function of (seed, purpose, index) and of nothing else, so that request 17 is the same
// whatever came before it. SplitMix64 (Steele, Lea, Flood 2014) from a start that is hashed of the three;
// logarithm and exponential are computed of additions, multiplications and divisions only, which IEEE 754
// rounds the same everywhere.
class SeededDraws {
 public:
  enum class Purpose : uint64_t { kArrival = 1, kModel, kPrompt, kPromptLength, kOutputLength, kSampling };

  SeededDraws(uint64_t seed, Purpose purpose, uint64_t index);

  uint64_t Bits();
  // 0 <= Unit() < 1, a multiple of 2^-53.
  double Unit() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  // 0 <= Below(n) < n, each as likely as the others.
  uint64_t Below(uint64_t n);
  // Of mean 1.
  double Exponential();
  // Of mean 0 and variance 1 (Marsaglia's polar method).
  double Normal();

 private:
  uint64_t state_;
};

// Within 1e-15 of the true value, relative for Exp; for x > 0, and for |x| < 700.
double PortableLog(double x);
double PortableExp(double x);

}  // namespace weir
