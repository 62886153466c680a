// What the kernel says of this process's memory, as it is read.
#include "server/process_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "tests/support/temp_dir.h"

namespace weir {
namespace {

constexpr int64_t kBytes = 64 << 20;
constexpr int64_t kSlack = 4 << 20;  // other threads of this process

// Pages are there from the start, so that nobody has to touch them.
class Mapping {
 public:
  Mapping(int protection, int flags, int fd)
      : data_(mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_POPULATE | flags, fd, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Mapping() { munmap(data_, kBytes); }

 private:
  void* const data_;
};

TEST(ProcessMemory, RisesByWhatIsAllocatedAndFallsByWhatIsGivenBack) {
  const ProcessMemory before = ReadProcessMemory();
  EXPECT_GT(before.anonymous, 0);
  EXPECT_GE(before.resident, before.proportional);
  EXPECT_GE(before.proportional, before.anonymous);  // nothing of this is shared with a child
  {
    const Mapping memory(PROT_READ | PROT_WRITE, MAP_ANONYMOUS, -1);
    const ProcessMemory held = ReadProcessMemory();
    EXPECT_NEAR(held.resident - before.resident, kBytes, kSlack);
    EXPECT_NEAR(held.anonymous - before.anonymous, kBytes, kSlack);
    // Its share of the program's own pages falls when another process runs the same program meanwhile.
    EXPECT_GE(held.proportional, held.anonymous);
    EXPECT_LE(held.proportional, held.resident);
  }
  const ProcessMemory after = ReadProcessMemory();
  EXPECT_NEAR(after.resident, before.resident, kSlack);
  EXPECT_NEAR(after.anonymous, before.anonymous, kSlack);
}

TEST(ProcessMemory, AMappedFileIsResidentAndNotAnonymous) {
  const testing::TempDir folder;
  const std::string path = folder.File("weights");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  const std::vector<char> block(1 << 20, 'w');
  for (int64_t i = 0; i < kBytes; i += static_cast<int64_t>(block.size()))
    ASSERT_EQ(write(fd, block.data(), block.size()), static_cast<ssize_t>(block.size()));
  const ProcessMemory before = ReadProcessMemory();
  const Mapping file(PROT_READ, 0, fd);
  const ProcessMemory mapped = ReadProcessMemory();
  close(fd);
  EXPECT_NEAR(mapped.resident - before.resident, kBytes, kSlack);
  EXPECT_NEAR(mapped.anonymous, before.anonymous, kSlack);
}

TEST(ProcessMemory, SwappedPagesCountAndAnOlderKernelIsAskedElsewhere) {
  const testing::TempDir folder;
  EXPECT_EQ(ReadProcessMemory(folder.path()).resident, 0);
  std::ofstream(folder.File("status")) << "Name:\tweir\nVmSize:\t   99 kB\nVmRSS:\t   30 kB\nRssAnon:\t   20 "
                                          "kB\nRssFile:\t 10 kB\nVmSwap:\t  4 kB\n";
  const ProcessMemory old = ReadProcessMemory(folder.path());
  EXPECT_EQ(old.resident, 30 << 10);
  EXPECT_EQ(old.proportional, 0);
  EXPECT_EQ(old.anonymous, 24 << 10);
  std::ofstream(folder.File("smaps_rollup"))
      << "55-7f ---p 00000000 00:00 0   [rollup]\nRss:    40 kB\nPss:    35 kB\nPss_Anon:   1 kB\n"
         "Anonymous:   22 kB\nAnonHugePages: 0 kB\nSwap:   7 kB\nSwapPss:   5 kB\n";
  const ProcessMemory memory = ReadProcessMemory(folder.path());
  EXPECT_EQ(memory.resident, 40 << 10);
  EXPECT_EQ(memory.proportional, 35 << 10);
  EXPECT_EQ(memory.anonymous, 29 << 10);
}

}  // namespace
}  // namespace weir
