// The host memory that this process may use, as the container runtime sees it.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

// The least of MemTotal and the limits of this process's cgroup and that one's parents (memory.max, or
// memory.limit_in_bytes of cgroup v1); 0 when none can be read.
int64_t MemoryLimit(const std::string& cgroup_root = "/sys/fs/cgroup",
                    const std::string& meminfo = "/proc/meminfo");

}  // namespace weir
