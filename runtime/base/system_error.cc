#include "runtime/base/system_error.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fmt/format.h"

namespace weir {

std::string SystemErrorText(int error) {
  const std::string text = std::strerror(error);
  if (error != EACCES && error != EPERM) return text;
  return fmt::format("{}; this process is user {} of group {}", text, geteuid(), getegid());
}

}  // namespace weir
