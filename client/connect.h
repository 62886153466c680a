// Opening a channel, with an answer soon when nobody listens.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cancel_token.h"
#include "grpcpp/channel.h"

namespace weir {

inline constexpr int kDefaultPort = 7070;

// What gRPC takes: `address`, with the default port where it names none. INVALID_ARGUMENT (INVALID_ADDRESS)
// for what is no address.
absl::StatusOr<std::string> TargetOf(std::string_view address);

// Returns once a gRPC server has greeted. UNAVAILABLE (UNREACHABLE) when the connection is refused, the name
// unknown, or `timeout` passed: then the server may be busy, too.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target, absl::Duration timeout,
                                                           const CancelToken* cancel);

}  // namespace weir
