#include "server/metrics/process_use.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace weir {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

int64_t OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // ".", ".." and the folder's own
}

}  // namespace

ProcessUse ReadProcessUse() {
  ProcessUse use;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    long long size = 0, resident = 0;
    if (std::fscanf(file, "%lld %lld", &size, &resident) == 2) {
      use.virtual_bytes = size * sysconf(_SC_PAGESIZE);
      use.resident_bytes = resident * sysconf(_SC_PAGESIZE);
    }
    std::fclose(file);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    use.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) use.max_descriptors = static_cast<int64_t>(limit.rlim_cur);
  use.open_descriptors = OpenDescriptors();
  return use;
}

}  // namespace weir
