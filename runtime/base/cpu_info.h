// How many threads this process may keep busy, as the container runtime sees it.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/base/cgroup.h"

namespace weir {

// Reads one cgroup v2 `cpu.max` line ("200000 100000" or "max 100000"). Whole CPUs, rounded down, at least 1;
// nullopt for "max" or a line that does not parse.
std::optional<int> CpusFromCpuMax(std::string_view cpu_max);

// min(affinity mask, quotas of the cgroup and its parents); at least 1.
int UsableCpus(const CgroupPaths& cgroups = {});

}  // namespace weir
