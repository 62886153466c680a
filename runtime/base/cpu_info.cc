#include "runtime/base/cpu_info.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
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

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The cgroup of this process below `root`: "0::/a/b" in /proc/self/cgroup names it (cgroup v2).
std::string OwnCgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  return "/";
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

std::vector<std::string> CgroupFolders(const std::string& cgroup_root) {
  std::vector<std::string> folders;
  std::string path = OwnCgroup();
  if (path == "/") path.clear();
  while (true) {
    folders.push_back(cgroup_root + path);
    if (path.empty()) return folders;
    path.resize(path.find_last_of('/'));
  }
}

int UsableCpus(const std::string& cgroup_root) {
  int cpus = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) cpus = std::max(1, CPU_COUNT(&mask));

  for (const std::string& folder : CgroupFolders(cgroup_root))
    if (const auto quota = CpusFromCpuMax(ReadLine(folder + "/cpu.max"))) cpus = std::min(cpus, *quota);
  // cgroup v1
  const std::string quota_us = ReadLine(cgroup_root + "/cpu/cpu.cfs_quota_us");
  const std::string period_us = ReadLine(cgroup_root + "/cpu/cpu.cfs_period_us");
  if (const auto quota = CpusFromCpuMax(quota_us + " " + period_us)) cpus = std::min(cpus, *quota);
  return cpus;
}

}  // namespace weir
