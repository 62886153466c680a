#include "client/command/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"

namespace weir {
namespace {

absl::Status CannotWrite(const std::string& path, int error, const char* left) {
  return absl::UnknownError(fmt::format("cannot write {}: {}{}", Quoted(path), std::strerror(error), left));
}

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  struct stat info = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return CannotWrite(path, EISDIR, "");
  if (exists && !S_ISREG(info.st_mode)) {
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return CannotWrite(path, errno, "");
    return OutputFile(path, "", false, fd);
  }
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return CannotWrite(path, errno, "");
  return OutputFile(path, temporary, exists, fd);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      replaces_(other.replaces_),
      fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status OutputFile::Error(int error) const {
  if (temporary_.empty()) return CannotWrite(path_, error, "");
  return CannotWrite(path_, error,
                     replaces_ ? "; the older file is still there" : "; nothing was left there");
}

absl::Status OutputFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Error(errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  // Some file systems tell of a full disk only here.
  if (!temporary_.empty() && fsync(fd_) != 0) return Error(errno);
  if (close(std::exchange(fd_, -1)) != 0) return Error(errno);
  if (temporary_.empty()) return absl::OkStatus();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Error(errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace weir
