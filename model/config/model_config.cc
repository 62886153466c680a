#include "model/config/model_config.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/base/status_macros.h"

namespace weir {

absl::StatusOr<ConfigReader> LoadModelConfig(const std::string& folder) {
  return ConfigReader::Load(folder + "/config.json");
}

namespace {

// Layouts that name no architecture: which they are is told by keys that no other layout has.
absl::StatusOr<std::optional<std::string>> UnnamedArchitecture(const ConfigReader& config) {
  if (config.Has("d_model") && config.Has("n_layer")) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> ssm, config.Object("ssm_cfg"));
    std::string layer = "Mamba1";
    if (ssm) {
      WEIR_ASSIGN_OR_RETURN(layer, ssm->String("layer", layer));
    }
    return "mamba_ssm " + layer;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> Architecture(const ConfigReader& config) {
  if (config.Has("architectures")) {
    WEIR_ASSIGN_OR_RETURN(std::vector<std::string> names, config.StringList("architectures"));
    if (!names.empty()) return std::move(names.front());
  }
  WEIR_ASSIGN_OR_RETURN(std::optional<std::string> model_type, config.OptionalString("model_type"));
  if (!model_type) {
    WEIR_ASSIGN_OR_RETURN(std::optional<std::string> unnamed, UnnamedArchitecture(config));
    if (unnamed) return *std::move(unnamed);
    return config.Error("architectures",
                        "is missing or empty, and so is 'model_type': one must name the model");
  }
  return *std::move(model_type);
}

absl::StatusOr<bool> TieWordEmbeddings(const ConfigReader& config, bool family_default) {
  return config.Bool("tie_word_embeddings", family_default);
}

namespace {

// Of one group of compressed-tensors' "config_groups": symmetric integers of 8 bits, a scale for each output.
absl::Status CheckQuantizedWeights(const ConfigReader& group) {
  WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> weights, group.Object("weights"));
  if (!weights) return absl::OkStatus();
  constexpr std::array<std::string_view, 1> kTypes = {"int"}, kStrategies = {"channel"};
  WEIR_RETURN_IF_ERROR(weights->Int("num_bits", 8, 8, 8).status());
  WEIR_RETURN_IF_ERROR(weights->Enum("type", kTypes, "int").status());
  WEIR_RETURN_IF_ERROR(weights->Enum("strategy", kStrategies, "channel").status());
  WEIR_ASSIGN_OR_RETURN(const bool symmetric, weights->Bool("symmetric", true));
  if (!symmetric) return weights->Error("symmetric", "is false; only weights without zero points are served");
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckQuantization(const ConfigReader& config) {
  WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> quantization, config.Object("quantization_config"));
  if (!quantization) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::string method, quantization->String("quant_method", ""));
  WEIR_ASSIGN_OR_RETURN(const std::string format, quantization->String("format", ""));
  if (method == "compressed-tensors" && (format == "int-quantized" || format == "naive-quantized")) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> groups, quantization->Object("config_groups"));
    for (int i = 0; groups; ++i) {
      WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> group,
                            groups->Object(fmt::format("group_{}", i)));
      if (!group) break;
      WEIR_RETURN_IF_ERROR(CheckQuantizedWeights(*group));
    }
    return absl::OkStatus();  // the loader of matrices checks types and shapes
  }
  return config.Error(
      "quantization_config",
      fmt::format("has quant_method '{}' and format '{}'; of quantized folders only compressed-tensors' "
                  "int-quantized is served, int8 with one scale for each output. Take the folder that was "
                  "quantized, and serve that with --weight-dtype int8",
                  method, format));
}

}  // namespace weir
