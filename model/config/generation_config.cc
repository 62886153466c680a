#include "model/config/generation_config.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "model/config/json_reader.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();
constexpr double kMaxFloat = std::numeric_limits<float>::max();
constexpr double kSmallestNormal = std::numeric_limits<float>::min();

absl::StatusOr<std::optional<ConfigReader>> LoadIfPresent(const std::string& path) {
  absl::StatusOr<ConfigReader> reader = ConfigReader::Load(path);
  if (absl::IsNotFound(reader.status())) return std::optional<ConfigReader>();
  WEIR_RETURN_IF_ERROR(reader.status());
  return std::optional<ConfigReader>(*std::move(reader));
}

// An id may be given as null or one integer; eos_token_id also as a list of them.
absl::StatusOr<std::vector<int32_t>> TokenIds(const ConfigReader& reader, std::string_view key) {
  std::vector<int32_t> ids;
  if (reader.IsList(key)) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> list, reader.IntList(key, 0, kMaxId));
    ids.assign(list.begin(), list.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }
  WEIR_ASSIGN_OR_RETURN(const std::optional<int64_t> id, reader.OptionalInt(key, 0, kMaxId));
  if (id) ids.push_back(static_cast<int32_t>(*id));
  return ids;
}

absl::Status ReadFloat(const ConfigReader& reader, std::string_view key, double min, double max,
                       std::optional<float>* out) {
  WEIR_ASSIGN_OR_RETURN(const std::optional<double> value, reader.OptionalFloat(key, min, max));
  if (value) *out = static_cast<float>(*value);
  return absl::OkStatus();
}

absl::Status ReadSampling(const ConfigReader& reader, GenerationDefaults* out) {
  WEIR_RETURN_IF_ERROR(ReadFloat(reader, "temperature", 0.0, kMaxFloat, &out->temperature));
  WEIR_RETURN_IF_ERROR(ReadFloat(reader, "top_p", 0.0, 1.0, &out->top_p));
  WEIR_RETURN_IF_ERROR(ReadFloat(reader, "min_p", 0.0, 1.0, &out->min_p));
  WEIR_RETURN_IF_ERROR(
      ReadFloat(reader, "repetition_penalty", kSmallestNormal, kMaxFloat, &out->repetition_penalty));
  WEIR_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, reader.OptionalInt("top_k", -1, kMaxId));
  if (top_k) out->top_k = static_cast<int32_t>(std::max<int64_t>(*top_k, 0));
  WEIR_ASSIGN_OR_RETURN(out->do_sample, reader.OptionalBool("do_sample"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationDefaults> GenerationDefaults::Load(const std::string& folder) {
  WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> generation,
                        LoadIfPresent(fmt::format("{}/generation_config.json", folder)));
  WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> config,
                        LoadIfPresent(fmt::format("{}/config.json", folder)));
  GenerationDefaults defaults;
  if (generation) WEIR_RETURN_IF_ERROR(ReadSampling(*generation, &defaults));
  const auto ids_of = [&](std::string_view key) -> absl::StatusOr<std::vector<int32_t>> {
    if (generation && generation->Mentions(key)) return TokenIds(*generation, key);
    if (config) return TokenIds(*config, key);
    return std::vector<int32_t>();
  };
  WEIR_ASSIGN_OR_RETURN(defaults.eos_token_ids, ids_of("eos_token_id"));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int32_t> bos, ids_of("bos_token_id"));
  if (bos.size() > 1) {
    return absl::InvalidArgumentError(
        fmt::format("{}: 'bos_token_id' is a list of {}; one integer is needed", folder, bos.size()));
  }
  if (!bos.empty()) defaults.bos_token_id = bos.front();
  return defaults;
}

}  // namespace weir
