#include "runtime/base/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace weir {
namespace {

// The number of a file that holds nothing else; "max" is none.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The number behind `key` in a file of such pairs.
std::optional<int64_t> NumberOf(const std::string& key, const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (int64_t value = 0; file >> name >> value; file.ignore(256, '\n'))
    if (name == key) return value;
  return std::nullopt;
}

}  // namespace

int64_t MemoryLimit(const CgroupPaths& cgroups, const std::string& meminfo) {
  int64_t limit = 0;
  const auto bound = [&limit](std::optional<int64_t> bytes) {
    if (bytes && *bytes > 0) limit = limit > 0 ? std::min(limit, *bytes) : *bytes;
  };
  for (const std::string& folder : CgroupFolders("", cgroups))
    for (const char* name : {"/memory.max", "/memory.high"}) bound(NumberIn(folder + name));
  for (const std::string& folder : CgroupFolders("memory", cgroups)) {
    bound(NumberIn(folder + "/memory.limit_in_bytes"));
    bound(NumberOf("hierarchical_memory_limit", folder + "/memory.stat"));
  }
  if (const auto kibibytes = NumberOf("MemTotal:", meminfo)) bound(*kibibytes * 1024);
  return limit;
}

}  // namespace weir
