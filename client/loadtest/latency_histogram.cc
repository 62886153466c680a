#include "client/loadtest/latency_histogram.h"

#include <algorithm>
#include <bit>

namespace weir {
namespace {

// Octave 0 has the values below 2^bits, octave n those from 2^(bits + n - 1) on.
int OctaveOf(int64_t value, int bits) {
  return std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(value))) - bits);
}

int BucketOf(int64_t value, int octave, int bits) {
  if (octave == 0) return static_cast<int>(value);
  const int64_t base = int64_t{1} << (bits + octave - 1);
  // The octave is `base` wide; it has 2^bits buckets, so from the second on a bucket takes 2^(octave - 1)
  // values.
  return static_cast<int>((value - base) >> (octave - 1));
}

}  // namespace

void LatencyHistogram::Add(int64_t value, int64_t times) {
  if (times <= 0) return;
  value = std::max<int64_t>(value, 0);
  const int octave = OctaveOf(value, kBucketBits);
  std::unique_ptr<Octave>& buckets = octaves_[octave];
  if (buckets == nullptr) buckets = std::make_unique<Octave>();
  const double sum = static_cast<double>(value) * static_cast<double>(times);
  Bucket& bucket = (*buckets)[BucketOf(value, octave, kBucketBits)];
  bucket.count += times;
  bucket.sum += sum;
  count_ += times;
  sum_ += sum;
  max_ = std::max(max_, value);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t octave = 0; octave < octaves_.size(); ++octave) {
    if (other.octaves_[octave] == nullptr) continue;
    if (octaves_[octave] == nullptr) octaves_[octave] = std::make_unique<Octave>();
    for (int i = 0; i < kBuckets; ++i) {
      (*octaves_[octave])[i].count += (*other.octaves_[octave])[i].count;
      (*octaves_[octave])[i].sum += (*other.octaves_[octave])[i].sum;
    }
  }
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

double LatencyHistogram::Quantile(int64_t numerator, int64_t denominator) const {
  if (count_ == 0) return 0;
  const auto wide = static_cast<__int128>(numerator) * count_;
  const auto rank =
      std::clamp(static_cast<int64_t>((wide + denominator - 1) / denominator), int64_t{1}, count_);
  if (rank == count_) return static_cast<double>(max_);
  int64_t below = 0;
  for (const std::unique_ptr<Octave>& octave : octaves_) {
    if (octave == nullptr) continue;
    for (const Bucket& bucket : *octave) {
      below += bucket.count;
      if (below >= rank) return bucket.sum / static_cast<double>(bucket.count);
    }
  }
  return static_cast<double>(max_);
}

int64_t LatencyHistogram::CountAbove(int64_t value) const {
  if (value < 0) return count_;
  const int octave = OctaveOf(value, kBucketBits);
  const int bucket = BucketOf(value, octave, kBucketBits);
  int64_t above = 0;
  for (int at = octave; at < static_cast<int>(octaves_.size()); ++at) {
    if (octaves_[at] == nullptr) continue;
    for (int i = at == octave ? bucket + 1 : 0; i < kBuckets; ++i) above += (*octaves_[at])[i].count;
  }
  return above;
}

Distribution LatencyHistogram::Summary(double unit) const {
  return {.count = count_,
          .mean = Mean() / unit,
          .p50 = Quantile(50, 100) / unit,
          .p90 = Quantile(90, 100) / unit,
          .p99 = Quantile(99, 100) / unit,
          .p999 = Quantile(999, 1000) / unit,
          .max = static_cast<double>(max_) / unit};
}

}  // namespace weir
