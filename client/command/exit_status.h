// What the exit status of `weir` means; documented in --help and client/README.md.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace weir {

enum ExitStatus {
  kExitOk = 0,
  kExitServerError = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,
  kExitTimeout = 4,
  kExitCapacity = 5,
  kExitSignal = 128,  // plus the signal's number: 130 after Ctrl-C
};

// The command line, or a file that it names, is wrong.
absl::Status UsageError(std::string message);

int ExitStatusOf(const absl::Status& status);

// One line: the message, then reason and retry advice in parentheses where there are any.
std::string ErrorLine(const absl::Status& status);
// The same as one JSON object: {"error":{"code":…,"reason":…,"message":…,"metadata":{…}}}.
std::string ErrorJson(const absl::Status& status);

}  // namespace weir
