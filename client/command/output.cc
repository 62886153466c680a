#include "client/command/output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace weir {
namespace {

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      // Somebody who shares this descriptor made it non-blocking.
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

bool Output::Write(std::string_view text) {
  if (ok()) error_ = WriteAll(STDOUT_FILENO, text);
  return ok();
}

bool Output::WriteLine(std::string text) {
  text.push_back('\n');
  return Write(text);
}

bool Output::closed() const { return error_ == EPIPE; }

absl::Status Output::status() const {
  if (ok()) return absl::OkStatus();
  return absl::UnknownError(fmt::format("cannot write the output: {}", std::strerror(error_)));
}

void Note(std::string_view text) { WriteAll(STDERR_FILENO, std::string(text) + "\n"); }

bool IsTerminal(int fd) { return isatty(fd) == 1; }

}  // namespace weir
