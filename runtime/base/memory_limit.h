// The host memory that this process may use, as the container runtime sees it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/cgroup.h"

namespace weir {

// The least of MemTotal and the limits of this process's cgroup and that one's parents: memory.max and
// memory.high (above which the kernel throttles), or cgroup v1's memory.limit_in_bytes and, for parents that
// cannot be seen, hierarchical_memory_limit. 0 when none can be read.
int64_t MemoryLimit(const CgroupPaths& cgroups = {}, const std::string& meminfo = "/proc/meminfo");

}  // namespace weir
