#include "client/command/json.h"

#include <cmath>
#include <cstdlib>

#include "fmt/format.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/time_util.h"

namespace weir {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::util::TimeUtil;

template <class Float>
Json Number(Float value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  // The shortest text that reads back as this float, not the double beside it: 0.1, not 0.10000000149.
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json Text(const FieldDescriptor& field, const std::string& value) {
  return field.type() == FieldDescriptor::TYPE_BYTES ? Base64(value) : value;
}

Json Element(const Message& message, const FieldDescriptor& field, int i) {
  const Reflection& from = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return from.GetRepeatedInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_INT64:
      return from.GetRepeatedInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT32:
      return from.GetRepeatedUInt32(message, &field, i);
    case FieldDescriptor::CPPTYPE_UINT64:
      return from.GetRepeatedUInt64(message, &field, i);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(from.GetRepeatedDouble(message, &field, i));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(from.GetRepeatedFloat(message, &field, i));
    case FieldDescriptor::CPPTYPE_BOOL:
      return from.GetRepeatedBool(message, &field, i);
    case FieldDescriptor::CPPTYPE_ENUM:
      return from.GetRepeatedEnum(message, &field, i)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return Text(field, from.GetRepeatedString(message, &field, i));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(from.GetRepeatedMessage(message, &field, i));
  }
  return nullptr;
}

Json Single(const Message& message, const FieldDescriptor& field) {
  const Reflection& from = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return from.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return from.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return from.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return from.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(from.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(from.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return from.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return from.GetEnum(message, &field)->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return Text(field, from.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ToJson(from.GetMessage(message, &field));
  }
  return nullptr;
}

}  // namespace

Json ToJson(const Message& message) {
  if (const auto* time = dynamic_cast<const google::protobuf::Timestamp*>(&message))
    return TimeUtil::ToString(*time);
  if (const auto* duration = dynamic_cast<const google::protobuf::Duration*>(&message))
    return TimeUtil::ToString(*duration);
  Json json = Json::object();
  const Reflection& from = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(f);
    if (field.is_repeated()) {
      Json list = Json::array();
      for (int i = 0; i < from.FieldSize(message, &field); ++i) list.push_back(Element(message, field, i));
      json[field.name()] = std::move(list);
    } else if (!field.has_presence() || from.HasField(message, &field)) {
      json[field.name()] = Single(message, field);
    }
  }
  return json;
}

std::string JsonLine(const Json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out.push_back(i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=');
  }
  return out;
}

}  // namespace weir
