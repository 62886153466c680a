// The table of a run: printed while it grows, so that a run that is cut off has shown what it measured.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace weir::bench {

// What a GPU allows, measured in the same run; 0: not yet.
struct GpuLimits {
  double bandwidth = 0;    // bytes a second that a copy moves, read and written
  double matrix_rate = 0;  // operations a second of a large bf16 product
};

struct GpuRow {
  std::string name = {};
  std::string size = {};
  // How bytes and operations are counted, for whoever wants to check.
  std::string counted = {};
  double bytes = 0;       // that have to move through the device's memory
  double operations = 0;  // of matrix products: a multiply-add is two
  double tokens = 0;      // where the rate is that of tokens
  double aim = 0;         // share of the floor; 0: none is set
  double seconds = 0;
  std::string skipped = {};  // why there is no time

  double Floor(const GpuLimits& limits) const;  // seconds; 0: unknown
  double Share(const GpuLimits& limits) const;  // of the floor; 0: unknown
};

class GpuReport {
 public:
  // Either may be null. `values`: the rows as tab-separated values, for scripts.
  GpuReport(std::FILE* table, std::FILE* values) : table_(table), values_(values) {}

  void Text(const std::string& line);
  void Section(const std::string& title);
  void Add(GpuRow row, const GpuLimits& limits);
  const std::vector<GpuRow>& rows() const { return rows_; }

 private:
  std::FILE* const table_;
  std::FILE* const values_;
  std::vector<GpuRow> rows_;
};

}  // namespace weir::bench
