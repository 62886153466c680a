// FileWatch: tells when files have changed and come to rest.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "runtime/base/mutex.h"

namespace weir {

// Looks at a group of files. One thread.
class FileChanges {
 public:
  // What is there now is known.
  explicit FileChanges(std::vector<std::string> paths);
  // True once for each change: when the files differ from what was known, and do not differ from what the
  // Poll before saw. So that a certificate and its key, or a long file, are not read in mid-change. Links are
  // followed; a file that is not there is a state like any other.
  bool Poll();

 private:
  const std::vector<std::string> paths_;
  std::string known_, seen_;
};

// A thread that polls and calls; polling works on every file system and with the links that Kubernetes swaps.
class FileWatch {
 public:
  struct Watched {
    FileChanges changes;              // made before the files were read, so that no change is missed
    std::function<void()> on_change;  // on the watch's thread
  };
  FileWatch(std::vector<Watched> files, absl::Duration interval);
  ~FileWatch();

 private:
  void Run();

  const absl::Duration interval_;
  std::vector<Watched> files_;
  Mutex mu_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir
