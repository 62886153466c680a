// From absl::Status to what travels in a gRPC trailer.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/status.h"

namespace weir {

inline constexpr std::string_view kErrorDomain = "weir.v1";
// grpc-message, before the transport's percent-encoding.
inline constexpr size_t kMaxErrorText = 1000;
// The whole google.rpc.Status: stock clients refuse metadata over 8 KiB, and base64 adds a third.
inline constexpr size_t kMaxDetailBytes = 3072;

// Exactly one ErrorInfo (the reason, or the code's name where the status was made without one), then
// BadRequest, QuotaFailure, RetryInfo, PreconditionFailure and ResourceInfo as they fit.
google::rpc::Status ToRpcStatus(const absl::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Valid UTF-8 without control characters, at most `limit` bytes: every other byte becomes \xNN.
std::string CleanText(std::string_view text, size_t limit);

}  // namespace weir
