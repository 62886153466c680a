#include "runtime/base/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

// A tree as /sys/fs/cgroup has it, and the file that says where the process is in it.
class Tree {
 public:
  explicit Tree(const std::string& own) { paths_.own = dir_.Write("own", own); }
  void Write(const std::string& folder, const std::string& name, const std::string& text) {
    std::filesystem::create_directories(dir_.path() + "/" + folder);
    dir_.Write(folder + "/" + name, text);
  }
  const CgroupPaths& paths() {
    paths_.root = dir_.path();
    return paths_;
  }
  int Cpus() { return UsableCpus(paths()); }

 private:
  const testing::TempDir dir_;
  CgroupPaths paths_;
};

// Runs `body` on a thread that may use one CPU only.
template <typename Body>
void OnOneCpu(Body body) {
  std::thread([&] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    body();
  }).join();
}

TEST(CpuInfo, DEP_09_QuotaIsRoundedDownToWholeCpus) {
  EXPECT_EQ(CpusFromCpuMax("200000 100000"), 2);
  EXPECT_EQ(CpusFromCpuMax("765000 100000"), 7);
  EXPECT_EQ(CpusFromCpuMax("50000 100000"), 1);
  EXPECT_EQ(CpusFromCpuMax("max 100000"), std::nullopt);
  for (const char* line : {"", "200000", "-1 100000", "x y", "1 0"})
    EXPECT_EQ(CpusFromCpuMax(line), std::nullopt);
}

TEST(CpuInfo, DEP_09_TheLeastOfAffinityAndQuotaCounts) {
  Tree tree("0::/\n");
  const int free = tree.Cpus();
  EXPECT_GE(free, 1);
  tree.Write(".", "cpu.max", "100000 100000\n");
  EXPECT_EQ(tree.Cpus(), 1);
  tree.Write(".", "cpu.max", "max 100000\n");
  EXPECT_EQ(tree.Cpus(), free);
  tree.Write(".", "cpu.max", "99900000 100000\n");
  EXPECT_EQ(tree.Cpus(), free);
  OnOneCpu([&] { EXPECT_EQ(tree.Cpus(), 1); });
}

TEST(CpuInfo, AQuotaOfAParentBindsToo) {
  Tree tree("0::/pods/weir\n");
  tree.Write("pods/weir", "cpu.max", "max 100000\n");
  tree.Write("pods", "cpu.max", "150000 100000\n");
  EXPECT_EQ(tree.Cpus(), 1);
}

TEST(CpuInfo, TheOlderGroupsAreReadWhereverTheyAreMounted) {
  for (const std::string own : {"3:cpu,cpuacct:/\n", "3:cpu,cpuacct:/pods/weir\n"}) {
    Tree alone(own), joint(own);
    for (const auto& [tree, folder] : {std::pair(&alone, "cpu"), std::pair(&joint, "cpu,cpuacct")}) {
      tree->Write(folder, "cpu.cfs_period_us", "100000\n");
      tree->Write(folder, "cpu.cfs_quota_us", "150000\n");
      EXPECT_EQ(tree->Cpus(), 1) << own << folder;
    }
  }
}

TEST(Cgroup, FoldersAreTheOwnOneAndThoseAboveIt) {
  using Folders = std::vector<std::string>;
  Tree tree("12:memory:/kubepods/pod7/weir\n3:cpu,cpuacct:/docker/7\n1:name=systemd:/x\n0::/system.slice\n");
  const std::string root = tree.paths().root;
  EXPECT_EQ(CgroupFolders("", tree.paths()),
            (Folders{root + "/system.slice", root, root + "/unified/system.slice", root + "/unified"}));
  EXPECT_EQ(CgroupFolders("memory", tree.paths()),
            (Folders{root + "/memory/kubepods/pod7/weir", root + "/memory/kubepods/pod7",
                     root + "/memory/kubepods", root + "/memory"}));
  // Part of a name is not the name.
  EXPECT_EQ(CgroupFolders("acct", tree.paths()), (Folders{root + "/acct"}));
  Tree outside("0::/../other\n");
  EXPECT_EQ(CgroupFolders("", outside.paths()).front(), outside.paths().root);
}

}  // namespace
}  // namespace weir
