// LatencyHistogram: percentiles of any number of values in bounded memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "client/loadtest/distribution.h"

namespace weir {

// Of whole numbers from 0 on, such as nanoseconds. Log-linear: values below 1,024 have a bucket each, every
// octave above has 1,024 of equal width, so that a bucket is at most 1/1024 of its values wide. A bucket
// keeps the number and the sum of its values and answers with their mean: exact where they are equal. At most
// 54 octaves of 16 KiB, made when a value falls into them. One thread.
class LatencyHistogram {
 public:
  LatencyHistogram() = default;
  LatencyHistogram(LatencyHistogram&&) = default;
  LatencyHistogram& operator=(LatencyHistogram&&) = default;

  // Negative values count as 0.
  void Add(int64_t value, int64_t times = 1);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  int64_t max() const { return max_; }
  double Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  // Nearest rank: the smallest value that at least numerator / denominator of all do not exceed; 0 without
  // values.
  double Quantile(int64_t numerator, int64_t denominator) const;
  // Values above `value`, exact where no other value shares its bucket.
  int64_t CountAbove(int64_t value) const;

  // In a unit of `unit` values: 1e6 for milliseconds of nanoseconds.
  Distribution Summary(double unit) const;

 private:
  static constexpr int kBucketBits = 10;
  static constexpr int kBuckets = 1 << kBucketBits;
  struct Bucket {
    int64_t count = 0;
    double sum = 0;  // exact below 2^53, and far within a bucket's width beyond
  };
  using Octave = std::array<Bucket, kBuckets>;

  std::array<std::unique_ptr<Octave>, 64 - kBucketBits> octaves_;
  int64_t count_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace weir
