// Where the memory limit of the process is found.
#include "server/capacity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/cpu_info.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

TEST(Capacity, TheOwnCgroupAndTheOlderFileBindTheMemoryToo) {
  const testing::TempDir older, own;
  const std::string meminfo = older.Write("meminfo", "MemTotal:        2048 kB\n");
  std::filesystem::create_directories(older.path() + "/memory");
  older.Write("memory/memory.limit_in_bytes", "1000000\n");
  EXPECT_EQ(MemoryLimit(older.path(), meminfo), 1'000'000);
  const std::string folder = CgroupFolders(own.path()).front();
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/memory.max") << "900000\n";
  EXPECT_EQ(MemoryLimit(own.path(), meminfo), 900'000);
}

}  // namespace
}  // namespace weir
