// The `weir` command as a process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weir {

struct ChildResult {
  int exit = -1;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

// One run; used by one thread. Streams go through files, so that no output can block it.
class Child {
 public:
  struct Options {
    std::string input;             // standard input
    std::vector<std::string> env;  // NAME=VALUE besides the test's own, or in place of them
    std::string out_path;          // instead of a file of ours
    int out_fd = -1;               // the same; the caller closes it
    int err_fd = -1;               // instead of a file of ours; likewise
  };
  Child(const std::vector<std::string>& arguments, const Options& options);
  explicit Child(const std::vector<std::string>& arguments) : Child(arguments, Options()) {}
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False when `text` does not show up on standard output in time.
  bool WaitForOutput(const std::string& text);
  void Signal(int signal);
  ChildResult Wait();

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

ChildResult RunWeir(const std::vector<std::string>& arguments, const std::string& input = "");

// A file that lasts as long as the object.
class TempFile {
 public:
  explicit TempFile(const std::string& content);
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weir
