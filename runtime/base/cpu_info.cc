#include "runtime/base/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <thread>

namespace weir {
namespace {

std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int> CpusFromCpuMax(std::string_view cpu_max) {
  const size_t space = cpu_max.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> quota = ParseInt(cpu_max.substr(0, space));
  const std::optional<int64_t> period = ParseInt(cpu_max.substr(space + 1));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<int64_t>(*quota / *period, 1, 4096));
}

int UsableCpus(const CgroupPaths& cgroups) {
  int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) cpus = std::max(1, CPU_COUNT(&mask));

  for (const std::string& folder : CgroupFolders("", cgroups))
    if (const auto quota = CpusFromCpuMax(FirstLine(folder + "/cpu.max"))) cpus = std::min(cpus, *quota);
  for (const std::string& folder : CgroupFolders("cpu", cgroups)) {
    const std::string line =
        FirstLine(folder + "/cpu.cfs_quota_us") + " " + FirstLine(folder + "/cpu.cfs_period_us");
    if (const auto quota = CpusFromCpuMax(line)) cpus = std::min(cpus, *quota);
  }
  return cpus;
}

}  // namespace weir
