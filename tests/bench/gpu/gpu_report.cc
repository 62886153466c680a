#include "tests/bench/gpu/gpu_report.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace weir::bench {
namespace {

std::string Time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string Rate(const GpuRow& row, const GpuLimits& limits) {
  if (row.tokens > 0) return fmt::format("{:.0f} tokens/s", row.tokens / row.seconds);
  const bool by_bytes = limits.bandwidth <= 0 || limits.matrix_rate <= 0
                            ? row.operations <= 0
                            : row.bytes / limits.bandwidth >= row.operations / limits.matrix_rate;
  if (by_bytes) return fmt::format("{:.0f} GB/s", row.bytes / row.seconds * 1e-9);
  return fmt::format("{:.1f} TFLOP/s", row.operations / row.seconds * 1e-12);
}

}  // namespace

double GpuRow::Floor(const GpuLimits& limits) const {
  double floor = 0;
  if (limits.bandwidth > 0) floor = bytes / limits.bandwidth;
  if (limits.matrix_rate > 0) floor = std::max(floor, operations / limits.matrix_rate);
  return floor;
}

double GpuRow::Share(const GpuLimits& limits) const { return seconds > 0 ? Floor(limits) / seconds : 0; }

void GpuReport::Text(const std::string& line) {
  if (table_ == nullptr) return;
  fmt::print(table_, "{}\n", line);
  std::fflush(table_);
}

void GpuReport::Section(const std::string& title) {
  Text(fmt::format("\n## {}\n", title));
  Text("| what | size | time | rate | MB | GFLOP | of floor | aim | counted |");
  Text("|---|---|--:|--:|--:|--:|--:|--:|---|");
}

void GpuReport::Add(GpuRow row, const GpuLimits& limits) {
  const bool measured = row.skipped.empty();
  const double share = row.Share(limits);
  const auto number = [](double value, double unit) {
    return value > 0 ? fmt::format("{:.3g}", value * unit) : std::string();
  };
  Text(fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |", row.name, row.size,
                   measured ? Time(row.seconds) : row.skipped, measured ? Rate(row, limits) : "",
                   number(row.bytes, 1e-6), number(row.operations, 1e-9),
                   share > 0 ? fmt::format("{:.2f}", share) : "",
                   row.aim > 0 ? fmt::format("{:.2f}", row.aim) : "", row.counted));
  if (values_ != nullptr) {
    fmt::print(values_, "{}\t{}\t{}\t{}\t{}\t{}\t{}\n", row.name, row.size, row.seconds, row.bytes,
               row.operations, row.tokens, row.skipped);
    std::fflush(values_);
  }
  rows_.push_back(std::move(row));
}

}  // namespace weir::bench
