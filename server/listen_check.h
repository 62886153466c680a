// Why an address cannot be listened on, in the system's words: gRPC tells only that it failed.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// FAILED_PRECONDITION (ADDRESS_IN_USE or ADDRESS_NOT_AVAILABLE) names the address, the reason and the remedy,
// another value of option `flag`.
// gRPC would replace the socket file of a server that runs: a unix socket on which somebody answers is in
// use.
absl::Status CheckListenAddress(const std::string& listen, std::string_view flag = "--listen");

}  // namespace weir
