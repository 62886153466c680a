// The control groups that this process is in: their limits are those of its container.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir {

// Where the kernel shows them; others in tests.
struct CgroupPaths {
  std::string root = "/sys/fs/cgroup";
  std::string own = "/proc/self/cgroup";
};

// The folder of this process's group, then those of its parents as far as they can be seen: a limit on any of
// them binds. `controller`: that of cgroup v1, such as "memory"; empty for cgroup v2. A container sees its
// own group at the root, whatever /proc says of the host's path: a folder that is not there is left out by
// who reads it.
std::vector<std::string> CgroupFolders(std::string_view controller, const CgroupPaths& paths = {});

// The first line of a file; empty where there is none.
std::string FirstLine(const std::string& path);

}  // namespace weir
