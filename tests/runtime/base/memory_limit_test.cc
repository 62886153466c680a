// Where the memory limit of the process is found.
#include "runtime/base/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/cpu_info.h"
#include "tests/support/temp_dir.h"

namespace weir {
namespace {

TEST(MemoryLimit, TheOwnCgroupAndTheOlderFileBindTheMemoryToo) {
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

TEST(MemoryLimit, IsTheCgroupsOrTheMachines) {
  testing::TempDir dir;
  const std::string meminfo = dir.Write("meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\n");
  dir.Write("memory.max", "max\n");
  EXPECT_EQ(MemoryLimit(dir.path(), meminfo), 2048 * 1024);
  dir.Write("memory.max", "1000000\n");
  EXPECT_EQ(MemoryLimit(dir.path(), meminfo), 1'000'000);
  dir.Write("memory.max", "99999999999\n");
  EXPECT_EQ(MemoryLimit(dir.path(), meminfo), 2048 * 1024);
  EXPECT_EQ(MemoryLimit("/nowhere", "/nowhere"), 0);
}

}  // namespace
}  // namespace weir
