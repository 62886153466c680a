// JSON from files that others wrote: duplicate keys, depth and size are checked, which nlohmann::json alone
// does not do; the bare Infinity, -Infinity and NaN that Python writes can be let in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace weir {

struct JsonLimits {
  size_t max_bytes = size_t{16} << 20;
  int max_depth = 64;
  bool allow_nonfinite = false;  // bare Infinity, -Infinity, NaN outside strings become float values
};

// `source` is how errors name the text, usually the file's path. INVALID_ARGUMENT on any fault.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view source,
                                         const JsonLimits& limits = {});

}  // namespace weir
