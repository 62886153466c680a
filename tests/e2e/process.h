// Process: one of the programs as a user starts it.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/base/check.h"

namespace weir::testing {

// A child process whose output (both streams) is collected.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command) {
    int ends[2];
    WEIR_CHECK(pipe(ends) == 0);
    // Before the fork: another thread may hold a lock of the allocator, which AddressSanitizer's child never
    // gets.
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    fd_ = ends[0];
  }
  ~Process() {
    if (!waited_) {
      kill(pid_, SIGKILL);
      Wait();
    }
    close(fd_);
  }
  void Signal(int signal) const { kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  // Whether it has, without waiting for it.
  bool Ended() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid == pid_;
  }
  // Reads until `text` has come, for at most a minute; what came so far.
  std::string ReadUntil(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (output_.find(text) == std::string::npos && std::chrono::steady_clock::now() < deadline)
      if (!ReadSome(100)) break;
    return output_;
  }
  // False when nothing has come in that time.
  bool ReadSomething() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (output_.empty() && std::chrono::steady_clock::now() < deadline)
      if (!ReadSome(100)) break;
    return !output_.empty();
  }
  // Exit code, or 1000 + signal.
  int Wait() {
    while (ReadSome(-1)) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  const std::string& output() const { return output_; }

 private:
  bool ReadSome(int timeout_ms) {
    pollfd poll_fd = {fd_, POLLIN, 0};
    if (poll(&poll_fd, 1, timeout_ms) == 0) return true;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof(buffer));
    if (n <= 0) return false;
    output_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  pid_t pid_;
  int fd_;
  bool waited_ = false;
  std::string output_;
};

}  // namespace weir::testing
