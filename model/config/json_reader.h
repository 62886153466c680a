// ConfigReader: typed, range-checked reading of a configuration file, with a record of which keys were asked
// for.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace weir {

// A window on one object of the file. Copies, and the readers that Object() gives, share the file and the
// record. One thread at a time. Every fault is INVALID_ARGUMENT naming file, key, value and what is allowed.
class ConfigReader {
 public:
  // Accepts what Python's json module writes (bare Infinity, -Infinity, NaN); refuses duplicate keys, more
  // than 16 MiB, and a root that is not an object. NOT_FOUND when there is no such file.
  static absl::StatusOr<ConfigReader> Load(const std::string& path);
  static absl::StatusOr<ConfigReader> Parse(std::string_view text, std::string_view source);

  // True when the key is there and not null. Counts as reading it.
  bool Has(std::string_view key) const;
  // True when the key is there, be it null.
  bool Mentions(std::string_view key) const;

  // `Optional...` and the forms with a default treat an absent key and null alike. Bounds are inclusive.
  absl::StatusOr<int64_t> Int(std::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<int64_t> Int(std::string_view key, int64_t min, int64_t max, int64_t fallback) const;
  absl::StatusOr<std::optional<int64_t>> OptionalInt(std::string_view key, int64_t min, int64_t max) const;

  // An integer is a float too; NaN never lies in a range; an infinity only where the bound is that infinity.
  absl::StatusOr<double> Float(std::string_view key, double min, double max) const;
  absl::StatusOr<double> Float(std::string_view key, double min, double max, double fallback) const;
  absl::StatusOr<std::optional<double>> OptionalFloat(std::string_view key, double min, double max) const;

  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::optional<bool>> OptionalBool(std::string_view key) const;

  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string_view fallback) const;
  absl::StatusOr<std::optional<std::string>> OptionalString(std::string_view key) const;

  // One of a fixed set of strings.
  absl::StatusOr<std::string> Enum(std::string_view key, std::span<const std::string_view> allowed) const;
  absl::StatusOr<std::string> Enum(std::string_view key, std::span<const std::string_view> allowed,
                                   std::string_view fallback) const;

  // Lists: each element within the bounds. A missing key is an error; see Has().
  absl::StatusOr<std::vector<int64_t>> IntList(std::string_view key, int64_t min, int64_t max) const;
  absl::StatusOr<std::vector<double>> FloatList(std::string_view key, double min, double max) const;
  absl::StatusOr<std::vector<std::string>> StringList(std::string_view key) const;
  bool IsList(std::string_view key) const;

  // A nested object, for instance rope_scaling; nullopt when absent or null.
  absl::StatusOr<std::optional<ConfigReader>> Object(std::string_view key) const;

  // Keys that nothing asked for, in file-independent (sorted) order; those of nested objects as
  // "outer.inner".
  std::vector<std::string> UnreadKeys() const;

  // "key=value\n" for every key of the root that was asked for and is there, sorted: two files with the same
  // text say the same to whoever asked.
  std::string ReadValues() const;

  // An INVALID_ARGUMENT that names the file and the key, for checks across keys.
  absl::Status Error(std::string_view key, std::string_view problem) const;
  const std::string& source() const;

 private:
  struct File;
  ConfigReader(std::shared_ptr<File> file, const nlohmann::json* node, std::string prefix);

  const nlohmann::json* Find(std::string_view key) const;  // nullptr when absent or null; records the key
  absl::Status Missing(std::string_view key, std::string_view wanted) const;
  absl::Status Bad(std::string_view key, const nlohmann::json& value, std::string_view wanted) const;

  std::shared_ptr<File> file_;
  const nlohmann::json* node_;  // an object inside file_
  std::string prefix_;          // "" at the root, else "outer."
};

}  // namespace weir
