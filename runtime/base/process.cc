#include "runtime/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <initializer_list>

#include "runtime/base/check.h"

namespace weir {

void KeepStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one: those below are open. Input can only be written, output only be
    // read.
    const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    WEIR_CHECK(opened == fd || opened < 0);
  }
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
