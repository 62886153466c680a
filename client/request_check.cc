#include "client/request_check.h"

#include <algorithm>
#include <string>

#include "client/rpc_error.h"
#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxIdLength = 63;

absl::Status CheckField(const std::string& path, const std::string& text) {
  const size_t at = FirstInvalidByte(text);
  if (at == std::string_view::npos) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, kInvalidText,
                   fmt::format("{}: is not UTF-8: byte {} is 0x{:02x}; convert it", path, at,
                               static_cast<unsigned char>(text[at])));
}

absl::Status Check(const Message& message, const std::string& prefix) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (int at = 0; at < message.GetDescriptor()->field_count(); ++at) {
    const FieldDescriptor* field = message.GetDescriptor()->field(at);
    if (field->is_map()) continue;  // of numbers
    const std::string path = prefix + field->name();
    const bool text = field->type() == FieldDescriptor::TYPE_STRING;
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!text && !nested) continue;
    if (nested && !field->is_repeated() && !reflection.HasField(message, field)) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (text)
        WEIR_RETURN_IF_ERROR(CheckField(path, field->is_repeated()
                                                  ? reflection.GetRepeatedString(message, field, i)
                                                  : reflection.GetString(message, field)));
      else
        WEIR_RETURN_IF_ERROR(Check(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                        : reflection.GetMessage(message, field),
                                   path + "."));
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t FirstInvalidByte(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  for (size_t at = 0; at < text.size();) {
    const unsigned first = byte(at);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0) return at;
    for (size_t i = 1; i < length; ++i)
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    // Overlong forms, surrogates and what lies beyond U+10FFFF show in the second byte.
    const unsigned second = byte(at + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f))
      return at;
    at += length;
  }
  return std::string_view::npos;
}

absl::Status CheckText(const Message& request) { return Check(request, ""); }

bool FitsSessionHint(std::string_view id) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !id.empty() && id.size() <= kMaxIdLength && std::all_of(id.begin(), id.end(), fits);
}

}  // namespace weir
