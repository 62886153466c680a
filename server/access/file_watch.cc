#include "server/access/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "fmt/format.h"

namespace weir {
namespace {

// All that tells one content of the files from another, short of reading them.
std::string Signature(const std::vector<std::string>& paths) {
  std::string signature;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (path.empty() || stat(path.c_str(), &info) != 0)
      signature += "none;";
    else
      signature +=
          fmt::format("{}:{}:{}:{}.{}:{}.{};", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                      info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  }
  return signature;
}

}  // namespace

FileChanges::FileChanges(std::vector<std::string> paths)
    : paths_(std::move(paths)), known_(Signature(paths_)), seen_(known_) {}

bool FileChanges::Poll() {
  std::string now = Signature(paths_);
  const bool at_rest = now == seen_;
  seen_ = std::move(now);
  if (!at_rest || seen_ == known_) return false;
  known_ = seen_;
  return true;
}

FileWatch::FileWatch(std::vector<Watched> files, absl::Duration interval)
    : interval_(interval), files_(std::move(files)), thread_([this] { Run(); }) {}

FileWatch::~FileWatch() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void FileWatch::Run() {
  for (;;) {
    {
      MutexLock lock(&mu_);
      if (!stop_) wake_.WaitFor(&mu_, absl::ToChronoNanoseconds(interval_));
      if (stop_) return;
    }
    for (Watched& file : files_)
      if (file.changes.Poll()) file.on_change();
  }
}

}  // namespace weir
