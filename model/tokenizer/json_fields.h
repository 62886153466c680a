// Checked reading of fields of a parsed tokenizer.json; every error names the object and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "model/tokenizer/utf8.h"
#include "nlohmann/json.hpp"

namespace weir {

using Json = nlohmann::json;

// Largest token id that a file may hold: tables of this many entries are made at load.
inline constexpr int64_t kMaxTokenId = (1 << 24) - 1;

inline absl::Status TokenizerError(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(fmt::format("tokenizer.json: {}: {}", where, what));
}

// The field, or null where it is absent or JSON null.
inline const Json* FindField(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

inline absl::StatusOr<std::string> StringField(const Json& object, const char* key,
                                               const std::string& where) {
  const Json* field = FindField(object, key);
  if (field == nullptr || !field->is_string()) {
    return TokenizerError(where, fmt::format("\"{}\" must be a string", key));
  }
  return field->get<std::string>();
}

inline absl::StatusOr<std::string> TypeField(const Json& object, const std::string& where) {
  if (!object.is_object()) return TokenizerError(where, "must be an object");
  return StringField(object, "type", where);
}

inline absl::StatusOr<bool> BoolField(const Json& object, const char* key, bool when_absent,
                                      const std::string& where) {
  const Json* field = FindField(object, key);
  if (field == nullptr) return when_absent;
  if (!field->is_boolean()) return TokenizerError(where, fmt::format("\"{}\" must be true or false", key));
  return field->get<bool>();
}

// A token id, or a small count.
inline absl::StatusOr<int32_t> IdValue(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kMaxTokenId) {
    return TokenizerError(where, fmt::format("must be an integer from 0 to {}", kMaxTokenId));
  }
  return static_cast<int32_t>(value.get<int64_t>());
}

// A string field that holds exactly one character.
inline absl::StatusOr<std::string> CharacterField(const Json& object, const char* key,
                                                  const std::string& where) {
  absl::StatusOr<std::string> text = StringField(object, key, where);
  if (!text.ok()) return text;
  size_t pos = 0;
  if (!text->empty()) NextCodePoint(*text, &pos);
  if (pos == 0 || pos != text->size()) {
    return TokenizerError(where, fmt::format("\"{}\" must be one character", key));
  }
  return text;
}

}  // namespace weir
