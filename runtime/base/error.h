// Errors that carry what a program needs beside the text: one reason in UPPER_SNAKE and named values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weir {

using ErrorMetadata = std::vector<std::pair<std::string, std::string>>;

struct ErrorDetails {
  std::string reason;  // empty: the status was made without one
  ErrorMetadata metadata;
  absl::Duration retry_after;  // zero: no advice
};

// The details travel as payloads of the status, so that every layer can pass it on untouched.
absl::Status MakeError(absl::StatusCode code, std::string_view reason, std::string_view message,
                       const ErrorMetadata& metadata = {}, absl::Duration retry_after = absl::ZeroDuration());

ErrorDetails GetErrorDetails(const absl::Status& status);

// The reason, or, of a status that was made without one, the name of its code.
std::string ReasonOrCode(const absl::Status& status);

// Text from outside for use in a message: non-printable and non-ASCII bytes escaped, at most `limit`
// characters.
std::string Quoted(std::string_view text, size_t limit = 100);

}  // namespace weir
