// The server's metrics in Prometheus's text format. README.md beside this file lists them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "runtime/engine/engine_metrics.h"
#include "server/frontend/frontend.h"

namespace weir {

// Where the numbers come from, at one moment.
struct MetricsView {
  Frontend* frontend = nullptr;  // null while the models are loaded
  const Rejections* at_the_gate = nullptr;
  int64_t live_streams = 0;
  int64_t dropped_log_lines = 0;
  bool serving = false;
  absl::Time start_time;  // of MonotonicNow()
};

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Any thread; reads counters and waits for nobody.
std::string MetricsText(const MetricsView& view);

// For the live page: what it shows, as JSON.
std::string LiveJson(const MetricsView& view);

}  // namespace weir
