// Where the memory limit of the process is found: trees as kernels and container runtimes show them.
#include "runtime/base/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

struct Recorded {
  std::string name;
  std::string own;  // /proc/self/cgroup
  std::vector<std::pair<std::string, std::string>> files;
  int64_t limit = 0;
};

constexpr int64_t kMachine = int64_t{24'000'000} * 1024;

const std::vector<Recorded>& Trees() {
  static const std::vector<Recorded> trees = {
      {"no limit anywhere", "0::/\n", {{"memory.max", "max\n"}, {"memory.high", "max\n"}}, kMachine},
      {"v2, own namespace", "0::/\n", {{"memory.max", "268435456\n"}, {"memory.high", "max\n"}}, 268435456},
      {"v2, throttled before it is killed",
       "0::/\n",
       {{"memory.max", "268435456\n"}, {"memory.high", "200000000\n"}},
       200000000},
      {"v2, the pod's limit above the container's",
       "0::/kubepods/pod7/weir\n",
       {{"kubepods/pod7/weir/memory.max", "max\n"}, {"kubepods/pod7/memory.max", "300000000\n"}},
       300000000},
      {"v2, the host's path in a container's view",
       "0::/system.slice/docker-7.scope\n",
       {{"memory.max", "134217728\n"}},
       134217728},
      {"v1 in a container: its group is the root",
       "4:memory:/docker/7\n0::/\n",
       {{"memory/memory.limit_in_bytes", "268435456\n"},
        {"memory/memory.stat", "cache 0\nrss 4096\nhierarchical_memory_limit 268435456\ntotal_rss 0\n"}},
       268435456},
      {"v1, a parent that cannot be seen",
       "4:memory:/docker/7\n",
       {{"memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"memory/memory.stat", "cache 0\nhierarchical_memory_limit 536870912\n"}},
       536870912},
      {"v1 without a namespace: the group lies deeper",
       "4:memory:/services/weir\n0::/\n",
       {{"memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"memory/services/weir/memory.limit_in_bytes", "100000000\n"}},
       100000000},
      {"v1 without a limit",
       "4:memory:/\n",
       {{"memory/memory.limit_in_bytes", "9223372036854771712\n"}},
       kMachine},
      {"more than the machine has", "0::/\n", {{"memory.max", "99999999999999\n"}}, kMachine},
  };
  return trees;
}

TEST(MemoryLimit, IsTheLeastOfTheGroupsAndTheMachine) {
  for (const Recorded& tree : Trees()) {
    const testing::TempDir dir;
    for (const auto& [name, text] : tree.files) {
      std::filesystem::create_directories(std::filesystem::path(dir.path() + "/" + name).parent_path());
      dir.Write(name, text);
    }
    const std::string meminfo = dir.Write("meminfo", "MemTotal:       24000000 kB\nMemFree: 1 kB\n");
    EXPECT_EQ(MemoryLimit({dir.path(), dir.Write("own", tree.own)}, meminfo), tree.limit) << tree.name;
  }
}

TEST(MemoryLimit, IsUnknownWhereNothingCanBeRead) {
  EXPECT_EQ(MemoryLimit({"/nowhere", "/nowhere"}, "/nowhere"), 0);
}

}  // namespace
}  // namespace weir
