#include "client/command/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"
#include "runtime/base/write_all.h"

namespace weir {
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
