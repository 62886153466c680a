// Opening a channel, with an answer soon when nobody listens.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cancel_token.h"
#include "client/tls.h"
#include "grpcpp/channel.h"

namespace weir {

inline constexpr int kDefaultPort = 7070;

// What gRPC takes: `address`, with the default port where it names none. INVALID_ARGUMENT (INVALID_ADDRESS)
// for what is no address.
absl::StatusOr<std::string> TargetOf(std::string_view address);

// Returns once a gRPC server has greeted. UNAVAILABLE (UNREACHABLE) when the connection is refused, the name
// unknown, or `timeout` passed: then the server may be busy, too. With a TLS_… reason when TLS is what is
// wrong.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& target, const TlsOptions& tls,
                                                           const TlsFiles& files, absl::Duration timeout,
                                                           const CancelToken* cancel);

// A channel as OpenChannel makes it, with a connection of its own instead of one that channels to the same
// target share; it connects at its first call.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& target, const TlsOptions& tls,
                                          const TlsFiles& files);

// Whether `target` is on this machine, so that nobody else sees what is sent.
bool IsLocal(std::string_view target);

}  // namespace weir
