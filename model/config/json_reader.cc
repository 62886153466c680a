#include "model/config/json_reader.h"

#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "model/config/input_file.h"
#include "model/config/json_parse.h"
#include "nlohmann/json.hpp"
#include "runtime/base/error.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

// Infinity and NaN as the file spells them, which dump() would turn into null.
std::string Spelling(const Json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  return value.dump();
}

std::optional<int64_t> AsInt(const Json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  const int64_t number = value.get<int64_t>();
  if (number < min || number > max) return std::nullopt;
  return number;
}

std::optional<double> AsFloat(const Json& value, double min, double max) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(min <= number && number <= max)) return std::nullopt;  // written so that NaN fails
  return number;
}

std::string IntWanted(int64_t min, int64_t max) {
  return min == max ? fmt::format("{}", min) : fmt::format("an integer from {} to {}", min, max);
}
std::string FloatWanted(double min, double max) { return fmt::format("a number from {} to {}", min, max); }

void CollectUnread(const Json& node, const std::string& prefix, const std::set<std::string>& read,
                   std::vector<std::string>* unread) {
  for (const auto& item : node.items()) {
    const std::string path = prefix + item.key();
    if (!read.contains(path)) {
      unread->push_back(path);
    } else if (item.value().is_object() && read.contains(path + ".")) {
      CollectUnread(item.value(), path + ".", read, unread);
    }
  }
}

// absl::StatusOr<std::optional<T>> to StatusOr<T> with a default.
template <class T, class Fallback>
absl::StatusOr<T> ValueOr(absl::StatusOr<std::optional<T>> value, const Fallback& fallback) {
  WEIR_RETURN_IF_ERROR(value.status());
  return value->has_value() ? **std::move(value) : T(fallback);
}

}  // namespace

struct ConfigReader::File {
  std::string source;
  Json root;
  std::set<std::string> read;  // "a.b"; "a." once Object("a") was opened
};

ConfigReader::ConfigReader(std::shared_ptr<File> file, const Json* node, std::string prefix)
    : file_(std::move(file)), node_(node), prefix_(std::move(prefix)) {}

absl::StatusOr<ConfigReader> ConfigReader::Load(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  return Parse(text, path);
}

absl::StatusOr<ConfigReader> ConfigReader::Parse(std::string_view text, std::string_view source) {
  WEIR_ASSIGN_OR_RETURN(Json root,
                        ParseJson(text, source, {.max_bytes = kMaxFileBytes, .allow_nonfinite = true}));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(fmt::format("{} does not hold a JSON object", source));
  }
  auto file = std::make_shared<File>();
  file->source = source;
  file->root = std::move(root);
  const Json* node = &file->root;
  return ConfigReader(std::move(file), node, "");
}

const Json* ConfigReader::Find(std::string_view key) const {
  file_->read.insert(fmt::format("{}{}", prefix_, key));
  const auto found = node_->find(std::string(key));
  return found == node_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::Has(std::string_view key) const { return Find(key) != nullptr; }
bool ConfigReader::Mentions(std::string_view key) const { return node_->contains(std::string(key)); }

bool ConfigReader::IsList(std::string_view key) const {
  const Json* value = Find(key);
  return value != nullptr && value->is_array();
}

const std::string& ConfigReader::source() const { return file_->source; }

absl::Status ConfigReader::Error(std::string_view key, std::string_view problem) const {
  return absl::InvalidArgumentError(
      fmt::format("{}: {} {}", file_->source, Quoted(fmt::format("{}{}", prefix_, key)), problem));
}

absl::Status ConfigReader::Missing(std::string_view key, std::string_view wanted) const {
  return Error(key, fmt::format("is missing; {} is needed", wanted));
}

absl::Status ConfigReader::Bad(std::string_view key, const Json& value, std::string_view wanted) const {
  return Error(key, fmt::format("is {}; {} is needed", Spelling(value), wanted));
}

absl::StatusOr<std::optional<int64_t>> ConfigReader::OptionalInt(std::string_view key, int64_t min,
                                                                 int64_t max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> number = AsInt(*value, min, max);
  if (!number) return Bad(key, *value, IntWanted(min, max));
  return number;
}

absl::StatusOr<int64_t> ConfigReader::Int(std::string_view key, int64_t min, int64_t max) const {
  WEIR_ASSIGN_OR_RETURN(const std::optional<int64_t> value, OptionalInt(key, min, max));
  if (!value) return Missing(key, IntWanted(min, max));
  return *value;
}

absl::StatusOr<int64_t> ConfigReader::Int(std::string_view key, int64_t min, int64_t max,
                                          int64_t fallback) const {
  return ValueOr(OptionalInt(key, min, max), fallback);
}

absl::StatusOr<std::optional<double>> ConfigReader::OptionalFloat(std::string_view key, double min,
                                                                  double max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  const std::optional<double> number = AsFloat(*value, min, max);
  if (!number) return Bad(key, *value, FloatWanted(min, max));
  return number;
}

absl::StatusOr<double> ConfigReader::Float(std::string_view key, double min, double max) const {
  WEIR_ASSIGN_OR_RETURN(const std::optional<double> value, OptionalFloat(key, min, max));
  if (!value) return Missing(key, FloatWanted(min, max));
  return *value;
}

absl::StatusOr<double> ConfigReader::Float(std::string_view key, double min, double max,
                                           double fallback) const {
  return ValueOr(OptionalFloat(key, min, max), fallback);
}

absl::StatusOr<std::optional<bool>> ConfigReader::OptionalBool(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Bad(key, *value, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<bool> ConfigReader::Bool(std::string_view key) const {
  WEIR_ASSIGN_OR_RETURN(const std::optional<bool> value, OptionalBool(key));
  if (!value) return Missing(key, "true or false");
  return *value;
}

absl::StatusOr<bool> ConfigReader::Bool(std::string_view key, bool fallback) const {
  return ValueOr(OptionalBool(key), fallback);
}

absl::StatusOr<std::optional<std::string>> ConfigReader::OptionalString(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Bad(key, *value, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<std::string> ConfigReader::String(std::string_view key) const {
  WEIR_ASSIGN_OR_RETURN(std::optional<std::string> value, OptionalString(key));
  if (!value) return Missing(key, "a string");
  return *std::move(value);
}

absl::StatusOr<std::string> ConfigReader::String(std::string_view key, std::string_view fallback) const {
  return ValueOr(OptionalString(key), fallback);
}

absl::StatusOr<std::string> ConfigReader::Enum(std::string_view key,
                                               std::span<const std::string_view> allowed) const {
  const std::string wanted =
      fmt::format("{}{}", allowed.size() == 1 ? "" : "one of ", fmt::join(allowed, ", "));
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key, wanted);
  if (value->is_string()) {
    const std::string& text = value->get_ref<const std::string&>();
    for (std::string_view choice : allowed) {
      if (text == choice) return text;
    }
  }
  return Bad(key, *value, wanted);
}

absl::StatusOr<std::string> ConfigReader::Enum(std::string_view key,
                                               std::span<const std::string_view> allowed,
                                               std::string_view fallback) const {
  return Has(key) ? Enum(key, allowed) : std::string(fallback);
}

absl::StatusOr<std::vector<int64_t>> ConfigReader::IntList(std::string_view key, int64_t min,
                                                           int64_t max) const {
  const std::string wanted = fmt::format("a list, each {},", IntWanted(min, max));
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key, wanted);
  if (!value->is_array()) return Bad(key, *value, wanted);
  std::vector<int64_t> numbers;
  for (const Json& element : *value) {
    const std::optional<int64_t> number = AsInt(element, min, max);
    if (!number) return Bad(fmt::format("{}[{}]", key, numbers.size()), element, IntWanted(min, max));
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<double>> ConfigReader::FloatList(std::string_view key, double min,
                                                            double max) const {
  const std::string wanted = fmt::format("a list, each {},", FloatWanted(min, max));
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key, wanted);
  if (!value->is_array()) return Bad(key, *value, wanted);
  std::vector<double> numbers;
  for (const Json& element : *value) {
    const std::optional<double> number = AsFloat(element, min, max);
    if (!number) return Bad(fmt::format("{}[{}]", key, numbers.size()), element, FloatWanted(min, max));
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> ConfigReader::StringList(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key, "a list of strings");
  if (!value->is_array()) return Bad(key, *value, "a list of strings");
  std::vector<std::string> strings;
  for (const Json& element : *value) {
    if (!element.is_string()) return Bad(fmt::format("{}[{}]", key, strings.size()), element, "a string");
    strings.push_back(element.get<std::string>());
  }
  return strings;
}

absl::StatusOr<std::optional<ConfigReader>> ConfigReader::Object(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<ConfigReader>();
  if (!value->is_object()) return Bad(key, *value, "an object");
  std::string prefix = fmt::format("{}{}.", prefix_, key);
  file_->read.insert(prefix);
  return std::optional<ConfigReader>(ConfigReader(file_, value, std::move(prefix)));
}

std::vector<std::string> ConfigReader::UnreadKeys() const {
  std::vector<std::string> unread;
  CollectUnread(*node_, prefix_, file_->read, &unread);
  return unread;
}

std::string ConfigReader::ReadValues() const {
  std::string text;
  for (const auto& [key, value] : file_->root.items())  // nlohmann's objects are sorted
    if (file_->read.contains(key) && !value.is_null()) text += fmt::format("{}={}\n", key, value.dump());
  return text;
}

}  // namespace weir
