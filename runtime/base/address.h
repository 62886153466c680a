// Addresses as users write them: HOST:PORT, HOST, [IPV6]:PORT, [IPV6] or unix:PATH.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

struct Address {
  std::string host;         // without brackets; empty for a unix socket
  std::optional<int> port;  // 0 to 65535
  std::string path;         // of a unix socket
};

// INVALID_ARGUMENT says what is wrong with the text; names are not looked up.
absl::StatusOr<Address> ParseAddress(std::string_view text);

}  // namespace weir
