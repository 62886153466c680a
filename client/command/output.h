// Standard output, unbuffered: every piece is on its way when Write returns.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// One thread. After the first failure nothing more is written.
class Output {
 public:
  // Whether it is still worth producing more. SIGPIPE must be ignored.
  bool Write(std::string_view text);
  bool WriteLine(std::string text);

  bool ok() const { return error_ == 0; }
  // The reader went away, as `head` does: no error, but nothing more to do.
  bool closed() const;
  absl::Status status() const;

 private:
  int error_ = 0;  // errno
};

// A warning or summary: one line on standard error.
void Note(std::string_view text);

bool IsTerminal(int fd);

}  // namespace weir
