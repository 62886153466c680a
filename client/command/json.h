// Messages of the contract as JSON that scripts can rely on.
#pragma once

#include <string>

#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace weir {

using Json = nlohmann::ordered_json;

// Field names as in the proto files; 64-bit integers are numbers, bytes are base64, times are RFC 3339,
// durations are "1.5s", non-finite numbers are "NaN", "Infinity" and "-Infinity". Plain fields are always
// there; messages, optional fields and members of a oneof only when they are set.
Json ToJson(const google::protobuf::Message& message);

// One object on one line without the newline; bytes that are no UTF-8 become U+FFFD.
std::string JsonLine(const Json& json);

std::string Base64(std::string_view bytes);

}  // namespace weir
