#include "tests/bench/gpu/gpu_bench.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/bench/machine_limits.h"

namespace weir::bench {
namespace {

constexpr double kSampleSeconds = 2e-3;  // so that an event's half microsecond does not count
constexpr double kWarmUpSeconds = 30e-3;
constexpr double kRowSeconds = 0.25;

// Two events on a stream and the time between them.
class EventTimer {
 public:
  explicit EventTimer(Stream& stream) : stream_(stream) {
    ok_ = cudaEventCreate(&begin_) == cudaSuccess && cudaEventCreate(&end_) == cudaSuccess;
  }
  ~EventTimer() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  // Seconds of one of `repeats` runs of the work.
  absl::StatusOr<double> Run(const GpuBench::Work& work, int repeats) {
    const auto native = static_cast<cudaStream_t>(stream_.native());
    bool ok = ok_ && cudaEventRecord(begin_, native) == cudaSuccess;
    for (int i = 0; i < repeats; ++i) work();
    ok = cudaEventRecord(end_, native) == cudaSuccess && ok;
    if (absl::Status status = stream_.Synchronize(); !status.ok()) return status;
    float milliseconds = 0;
    if (!ok || cudaEventElapsedTime(&milliseconds, begin_, end_) != cudaSuccess)
      return absl::InternalError("events cannot be recorded");
    return milliseconds * 1e-3 / repeats;
  }

 private:
  Stream& stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bool ok_ = false;
};

}  // namespace

GpuBench::GpuBench(Device& device, const GpuBenchOptions& options, GpuReport& report)
    : device_(device), options_(options), report_(report) {}

double GpuBench::Seconds() const { return SecondsSince(start_); }

void GpuBench::Section(const std::string& title, double share, bool always) {
  wants_section_ = always || title.find(options_.only) != std::string::npos;
  shares_ += share;
  section_end_ = options_.seconds * std::min(1.0, shares_);
  report_.Section(title);
}

absl::StatusOr<double> GpuBench::MedianSeconds(const Work& work) {
  EventTimer timer(device_.stream());
  absl::StatusOr<double> once = timer.Run(work, 1);  // loads the kernels
  if (!once.ok() || tiny()) return once;
  once = timer.Run(work, 1);
  if (!once.ok()) return once;
  const int repeats = static_cast<int>(std::clamp(kSampleSeconds / std::max(*once, 1e-7), 1.0, 500.0));
  const auto warm = Clock::now();
  while (SecondsSince(warm) < kWarmUpSeconds) {
    once = timer.Run(work, repeats);
    if (!once.ok()) return once;
  }
  const int samples = static_cast<int>(std::clamp(kRowSeconds / (*once * repeats), 3.0, 25.0));
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) {
    const absl::StatusOr<double> sample = timer.Run(work, repeats);
    if (!sample.ok()) return sample;
    seconds.push_back(*sample);
  }
  return Quantile(&seconds, 0.5);
}

void GpuBench::Measure(GpuRow row, FunctionRef<Work(DeviceArrays&)> setup) {
  if (!Wants(row.name)) return;
  if (TimeIsUp()) return Skip(std::move(row), "skipped: no time left");
  DeviceArrays arrays(device_);
  const Work work = setup(arrays);
  if (!arrays.status().ok()) return Add(std::move(row), arrays.status());
  work_status_ = absl::OkStatus();
  const absl::StatusOr<double> seconds = MedianSeconds(work);
  Add(std::move(row), work_status_.ok() ? seconds : work_status_);
}

void GpuBench::Add(GpuRow row, const absl::StatusOr<double>& seconds) {
  if (seconds.ok()) {
    row.seconds = std::max(*seconds, 1e-9);
    return report_.Add(std::move(row), limits_);
  }
  if (absl::IsResourceExhausted(seconds.status())) return Skip(std::move(row), "skipped: does not fit");
  ++num_failed_;
  Skip(std::move(row), fmt::format("failed: {}", std::string(seconds.status().message())));
}

void GpuBench::Skip(GpuRow row, const std::string& reason) {
  row.skipped = reason;
  report_.Add(std::move(row), limits_);
}

int RunGpuBench(Device& device, const GpuBenchOptions& options, GpuReport& report) {
  GpuBench bench(device, options, report);
  LimitRows(bench);
  DecodeRows(bench);
  RowOpRows(bench);
  ProductRows(bench);
  PrefillRows(bench);
  ModelRows(bench);
  report.Text(fmt::format("\n{:.0f} s of {:.0f} s used.", bench.Seconds(), options.seconds));
  return bench.num_failed();
}

}  // namespace weir::bench
