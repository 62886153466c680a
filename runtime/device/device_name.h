// The names that CreateDevice knows, for who is to refuse others before there is a device.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace weir {

// `name`, if it is "cpu", "cuda" or "cuda:N"; INVALID_ARGUMENT.
absl::StatusOr<std::string> ParseDeviceName(const std::string& name);

}  // namespace weir
