// The measurements of weir-gpu-bench: each kernel of the CUDA column against what it must move or multiply,
// and whole models. Every time is the median of several, by the device's own events unless a row says
// otherwise.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/function_ref.h"
#include "runtime/device/device.h"
#include "tests/bench/gpu/device_arrays.h"
#include "tests/bench/gpu/gpu_report.h"

namespace weir::bench {

struct GpuBenchOptions {
  double seconds = 300;  // for all; what does not fit is skipped and says so
  bool tiny = false;     // sizes that an emulated device can do, each once
  std::string only;      // sections and rows whose name holds this; empty: all
};

class GpuBench {
 public:
  GpuBench(Device& device, const GpuBenchOptions& options, GpuReport& report);

  Device& device() { return device_; }
  const GpuBenchOptions& options() const { return options_; }
  GpuReport& report() { return report_; }
  GpuLimits& limits() { return limits_; }
  bool tiny() const { return options_.tiny; }
  template <class T>
  T Pick(T full, T tiny) const {
    return options_.tiny ? tiny : full;
  }

  // `share` of all seconds is for the rows that follow; what an earlier section has left over comes on top.
  // `always`: no choice of rows leaves any of these out.
  void Section(const std::string& title, double share, bool always = false);
  bool Wants(const std::string& name) const {
    return wants_section_ || name.find(options_.only) != std::string::npos;
  }
  bool TimeIsUp() const { return Seconds() > section_end_; }
  double Seconds() const;  // since the start

  // Runs on device().stream(); called many times.
  using Work = std::function<void()>;
  // Allocates what the row needs, makes the work and times it. Without memory or time the row says so.
  void Measure(GpuRow row, FunctionRef<Work(DeviceArrays&)> setup);
  // For work that notices by itself that it cannot be done; OK changes nothing.
  void FailWork(const absl::Status& status) { work_status_.Update(status); }
  // A row whose time was taken elsewhere, or why there is none.
  void Add(GpuRow row, const absl::StatusOr<double>& seconds);
  void Skip(GpuRow row, const std::string& reason);

  // Rows that failed, for any other reason than memory or time.
  int num_failed() const { return num_failed_; }

 private:
  absl::StatusOr<double> MedianSeconds(const Work& work);

  Device& device_;
  const GpuBenchOptions options_;
  GpuReport& report_;
  GpuLimits limits_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool wants_section_ = true;
  double section_end_ = 0;  // seconds since the start
  double shares_ = 0;       // of this and all earlier sections
  absl::Status work_status_;
  int num_failed_ = 0;
};

// All sections, in this order. Returns the number of rows that failed.
int RunGpuBench(Device& device, const GpuBenchOptions& options, GpuReport& report);

void LimitRows(GpuBench& bench);    // limit_rows.cc: must come first
void DecodeRows(GpuBench& bench);   // one token a session: recurrence, scan, attention
void RowOpRows(GpuBench& bench);    // what works on each row by itself
void ProductRows(GpuBench& bench);  // projections, and cuBLASLt's where it is found
void PrefillRows(GpuBench& bench);  // many tokens a sequence
void ModelRows(GpuBench& bench);    // whole decoders

}  // namespace weir::bench
