// From what travels in a gRPC trailer to absl::Status, with the details where GetErrorDetails() finds them.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace weir {

// Reasons that the client itself gives; all others come from the server.
inline constexpr std::string_view kInvalidText = "INVALID_TEXT";        // a string that is not UTF-8
inline constexpr std::string_view kInvalidAddress = "INVALID_ADDRESS";  // of the server
inline constexpr std::string_view kUnreachable = "UNREACHABLE";         // no connection was made
inline constexpr std::string_view kConnectionLost =
    "CONNECTION_LOST";  // it broke before the answer was whole
// No connection was made, and why (see tls.h).
inline constexpr std::string_view kTlsRequired = "TLS_REQUIRED";
inline constexpr std::string_view kTlsNotSpoken = "TLS_NOT_SPOKEN";
inline constexpr std::string_view kTlsUntrusted = "TLS_UNTRUSTED";
inline constexpr std::string_view kTlsNameMismatch = "TLS_NAME_MISMATCH";
inline constexpr std::string_view kTlsClientRefused = "TLS_CLIENT_REFUSED";
// What was to be sent or shown to the server is not right.
inline constexpr std::string_view kTlsFilesInvalid = "TLS_FILES_INVALID";
inline constexpr std::string_view kApiKeyMalformed = "API_KEY_MALFORMED";
inline constexpr std::string_view kDeadlinePassed = "DEADLINE_PASSED";  // the client's own time limit
inline constexpr std::string_view kCallCancelled = "CALL_CANCELLED";    // by a CancelToken
// The transport refused the request for its size, before anybody of Weir saw it.
inline constexpr std::string_view kMessageTooLarge = "MESSAGE_TOO_LARGE";
inline constexpr std::string_view kStreamGap = "STREAM_GAP";  // positions do not follow each other
inline constexpr std::string_view kStreamMalformed =
    "STREAM_MALFORMED";  // not the order that the contract names

// ErrorInfo becomes reason and metadata, RetryInfo the time to wait. Violated fields, which the message may
// not name, are added to the metadata as `field NAME`. `address` is for the messages of transport failures.
absl::Status FromGrpc(const grpc::Status& status, std::string_view address);

}  // namespace weir
