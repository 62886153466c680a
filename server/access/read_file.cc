#include "server/access/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "fmt/format.h"
#include "runtime/base/error.h"
#include "runtime/base/system_error.h"

namespace weir {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(std::string_view option, const std::string& path, int64_t limit) {
  const auto refuse = [&](std::string_view why) {
    return MakeError(absl::StatusCode::kInvalidArgument, "FILE_UNREADABLE",
                     fmt::format("{} {}: {}", option, Quoted(path), why), {{"path", path}});
  };
  // Non-blocking, so that a FIFO is refused below and not waited for.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.get() < 0 || fstat(file.get(), &info) != 0) return refuse(SystemErrorText(errno));
  if (!S_ISREG(info.st_mode)) return refuse("is no regular file");
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(SystemErrorText(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (static_cast<int64_t>(text.size()) > limit) return refuse(fmt::format("is over {} bytes", limit));
  }
}

}  // namespace weir
