// What one thread counts and any thread may read: neither waits for the other, and a count costs no locked
// instruction.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weir {

// Never falls. Add: one thread at a time.
class EventCounter {
 public:
  void Add(int64_t n = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct HistogramReading {
  std::span<const double> bounds;  // upper ends, inclusive, ascending; one more bucket is above the last
  std::vector<int64_t> counts;     // bounds.size() + 1, each bucket's own
  double sum = 0;

  int64_t count() const {
    int64_t all = 0;
    for (const int64_t n : counts) all += n;
    return all;
  }
};

// Buckets between bounds that are fixed when it is made. Observe: one thread at a time.
class Histogram {
 public:
  // bounds: ascending, outlives this.
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds), counts_(std::make_unique<EventCounter[]>(bounds.size() + 1)) {}

  void Observe(double value) {
    value = std::max(value, 0.0);  // a clock that was read in another order
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    // The sum first: a reader may see a value without its count, but never a mean that is too low for all
    // counts.
    sum_.store(sum_.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    counts_[static_cast<size_t>(bucket)].Add();
  }

  HistogramReading Read() const {
    HistogramReading reading;
    reading.bounds = bounds_;
    for (size_t i = 0; i <= bounds_.size(); ++i) reading.counts.push_back(counts_[i].value());
    reading.sum = sum_.load(std::memory_order_relaxed);
    return reading;
  }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::span<const double> bounds_;
  const std::unique_ptr<EventCounter[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace weir
