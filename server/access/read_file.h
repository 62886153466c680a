// Small files that an operator names: read whole, with errors that name them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

// INVALID_ARGUMENT (FILE_UNREADABLE) names `option`, the path and why. Only regular files, of at most `limit`
// bytes.
absl::StatusOr<std::string> ReadSmallFile(std::string_view option, const std::string& path, int64_t limit);

}  // namespace weir
