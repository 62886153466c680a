// What can be wrong with a request's texts before it is sent.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace weir {

// Offset of the first byte that is not part of a valid UTF-8 character; npos when all are.
size_t FirstInvalidByte(std::string_view text);

// INVALID_ARGUMENT (INVALID_TEXT) naming the first string field that is not UTF-8. Such a message would
// travel, and the server's gRPC would refuse it without a word before Weir sees it.
absl::Status CheckText(const google::protobuf::Message& request);

// Whether `id` can be sent as x-session-id: characters and length of a session's id. What cannot is left out,
// and the server says what is wrong with the request's own field.
bool FitsSessionHint(std::string_view id);

}  // namespace weir
