#include "runtime/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/cpu_info.h"

namespace weir {

int64_t MemoryLimit(const std::string& cgroup_root, const std::string& meminfo) {
  int64_t limit = 0;
  int64_t value = 0;
  const auto bound = [&limit](int64_t bytes) { limit = limit > 0 ? std::min(limit, bytes) : bytes; };
  std::vector<std::string> files = {cgroup_root + "/memory/memory.limit_in_bytes"};
  for (const std::string& folder : CgroupFolders(cgroup_root)) files.push_back(folder + "/memory.max");
  for (const std::string& name : files)
    if (std::ifstream file(name); file >> value) bound(value);  // "max" is no number
  std::ifstream file(meminfo);
  std::string key, unit;
  while (file >> key >> value >> unit) {
    if (key != "MemTotal:") continue;
    bound(value * 1024);
    break;
  }
  return limit;
}

}  // namespace weir
