#include "runtime/base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>

#include "runtime/base/write_all.h"

namespace weir {
namespace {

const char* shortage_program = "";
int shortage_status = 1;

// Where there is no memory, nothing here may ask for any. Several threads may come here at once.
[[noreturn]] void EndForWantOf(const char* what) {
  static std::atomic_flag said = ATOMIC_FLAG_INIT;
  while (said.test_and_set()) pause();
  char line[512];
  const int length = std::snprintf(line, sizeof(line), "%s: %s\n", shortage_program, what);
  WriteAll(STDERR_FILENO,
           std::string_view(line, static_cast<size_t>(length)));  // in one, as others write too
  _exit(shortage_status);
}

[[noreturn]] void OnUncaught() {
  try {
    if (const std::exception_ptr exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    EndForWantOf(
        "out of memory: allow this process more (a container's --memory, ulimit -v), or give it less to "
        "keep");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)
      EndForWantOf(
          "no further thread could be made: allow this process more of them (a container's --pids-limit, "
          "ulimit -u) or more address space (ulimit -v)");
    std::fprintf(stderr, "%s: %s\n", shortage_program, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", shortage_program, error.what());
  } catch (...) {
  }
  std::abort();
}

}  // namespace

void NameShortages(const char* program, int status) {
  shortage_program = program;
  shortage_status = status;
  std::set_terminate(OnUncaught);
}

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
