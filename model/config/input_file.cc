#include "model/config/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/system_error.h"

namespace weir {
namespace {

// One read() moves at most 2 GiB on Linux.
constexpr size_t kMaxReadBytes = size_t{1} << 30;

// `error`: an errno.
absl::Status CannotOpen(const std::string& path, int error) {
  const std::string text = fmt::format("cannot open {}: {}", path, SystemErrorText(error));
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  if (error != ENOENT && error != ENOTDIR) return absl::InternalError(text);
  // A hub's cache is folders of links that lead out of them. Such a file is not absent, and may not be passed
  // over where it is optional.
  std::error_code none;
  const std::filesystem::path target = std::filesystem::read_symlink(path, none);
  if (none) return absl::NotFoundError(text);
  return absl::FailedPreconditionError(fmt::format(
      "cannot open {}: it is a link to {}, which is not there; what links lead to has to be mounted "
      "or copied with them",
      path, Quoted(target.string())));
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a pipe must not hang; it changes nothing for regular files.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return CannotOpen(path, errno);
  struct stat info {};
  if (::fstat(file.fd_, &info) != 0) {
    return absl::InternalError(fmt::format("cannot examine {}: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("{} is not a regular file", path));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.modified_ = info.st_mtim;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_(other.modified_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status InputFile::CheckUnchanged() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    return absl::InternalError(fmt::format("cannot examine {}: {}", path_, std::strerror(errno)));
  }
  if (static_cast<uint64_t>(info.st_size) != size_) {
    return absl::DataLossError(fmt::format("{} changed while it was read: expected {} bytes, it now has {}",
                                           path_, size_, info.st_size));
  }
  if (info.st_mtim.tv_sec != modified_.tv_sec || info.st_mtim.tv_nsec != modified_.tv_nsec) {
    return absl::DataLossError(
        fmt::format("{} was written to while it was read; load it again when it is complete", path_));
  }
  return absl::OkStatus();
}

absl::Status InputFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const size_t wanted = std::min(out.size(), kMaxReadBytes);
    const ssize_t got = ::pread(fd_, out.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(
          fmt::format("cannot read {} bytes at {} of {}: {}", wanted, offset, path_, std::strerror(errno)));
    }
    if (got == 0) {
      WEIR_RETURN_IF_ERROR(CheckUnchanged());
      return absl::DataLossError(
          fmt::format("{} ends at byte {}; {} more were expected", path_, offset, out.size()));
    }
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  // Afterwards, so that a change during the read is seen too.
  return CheckUnchanged();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  WEIR_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size() > max_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} has {} bytes, at most {} are accepted", path, file.size(), max_bytes));
  }
  std::string text(file.size(), '\0');
  WEIR_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace weir
