#include "runtime/base/cpu_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

TEST(CpuInfo, DEP_09_QuotaIsRoundedDownToWholeCpus) {
  EXPECT_EQ(CpusFromCpuMax("200000 100000"), 2);
  EXPECT_EQ(CpusFromCpuMax("765000 100000"), 7);
  EXPECT_EQ(CpusFromCpuMax("50000 100000"), 1);
  EXPECT_EQ(CpusFromCpuMax("max 100000"), std::nullopt);
  for (const char* line : {"", "200000", "-1 100000", "x y", "1 0"})
    EXPECT_EQ(CpusFromCpuMax(line), std::nullopt);
}

TEST(CpuInfo, TheQuotaBoundsTheAffinity) {
  const testing::TempDir root;
  const int free = UsableCpus(root.path());
  EXPECT_GE(free, 1);
  std::ofstream(root.path() + "/cpu.max") << "100000 100000\n";
  EXPECT_EQ(UsableCpus(root.path()), 1);
  std::ofstream(root.path() + "/cpu.max") << "max 100000\n";
  EXPECT_EQ(UsableCpus(root.path()), free);
}

TEST(CpuInfo, CgroupFoldersEndAtTheRoot) {
  const std::vector<std::string> folders = CgroupFolders("/root");
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders.back(), "/root");
  for (size_t i = 1; i < folders.size(); ++i) EXPECT_EQ(folders[i - 1].rfind(folders[i] + "/", 0), 0u);
}

TEST(CpuInfo, TheOlderCgroupFilesAreReadToo) {
  const testing::TempDir root;
  std::filesystem::create_directory(root.path() + "/cpu");
  std::ofstream(root.path() + "/cpu/cpu.cfs_quota_us") << "150000\n";
  std::ofstream(root.path() + "/cpu/cpu.cfs_period_us") << "100000\n";
  EXPECT_EQ(UsableCpus(root.path()), 1);
}

}  // namespace
}  // namespace weir
