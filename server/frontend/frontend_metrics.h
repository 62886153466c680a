// What is counted before a turn reaches the engine. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/histogram.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/engine_metrics.h"

namespace weir {

class FrontendMetrics {
 public:
  explicit FrontendMetrics(size_t num_models)
      : cancelled_(num_models), expired_(num_models), tokenization_(kRequestBounds) {}

  // A turn whose client went away, or whose deadline passed, while it was looked at and tokenized.
  void AddGivenUp(size_t model, bool cancelled) {
    (cancelled ? cancelled_ : expired_)[model].fetch_add(1, std::memory_order_relaxed);
  }
  int64_t cancelled(size_t model) const { return cancelled_[model].load(std::memory_order_relaxed); }
  int64_t expired(size_t model) const { return expired_[model].load(std::memory_order_relaxed); }

  void ObserveTokenization(absl::Duration duration) {
    MutexLock lock(&mu_);
    tokenization_.Observe(absl::ToDoubleSeconds(duration));
  }
  const Histogram& tokenization() const { return tokenization_; }

 private:
  std::vector<std::atomic<int64_t>> cancelled_, expired_;  // by model
  Mutex mu_;                                               // one at a time observes
  Histogram tokenization_;
};

}  // namespace weir
