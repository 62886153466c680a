#include "runtime/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <initializer_list>

namespace weir {

void KeepStandardDescriptors(char** argv) {
  bool taken = false;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    const int flags = fcntl(fd, F_GETFD);
    // A descriptor that came with the program outlived an exec, so it has no close-on-exec.
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    taken = taken || flags >= 0;
    // Input can only be written, output only be read.
    const int null = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (null >= 0 && null != fd) {
      dup2(null, fd);
      close(null);
    }
  }
  if (taken) execv("/proc/self/exe", argv);
}

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (limit.rlim_cur != before && setrlimit(RLIMIT_NOFILE, &limit) != 0) return static_cast<int64_t>(before);
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace weir
