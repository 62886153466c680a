// How many threads this process may keep busy, as the container runtime sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weir {

// Reads one cgroup v2 `cpu.max` line ("200000 100000" or "max 100000"). Whole CPUs, rounded down, at least 1;
// nullopt for "max" or a line that does not parse.
std::optional<int> CpusFromCpuMax(std::string_view cpu_max);

// The folder of this process's cgroup (v2) below `cgroup_root`, then those of its parents up to the root: a
// limit on any of them binds.
std::vector<std::string> CgroupFolders(const std::string& cgroup_root = "/sys/fs/cgroup");

// min(affinity mask, cgroup quota); at least 1. `cgroup_root` is a parameter for tests.
int UsableCpus(const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace weir
