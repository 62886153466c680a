#include "model/mixers/mamba_layouts.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "runtime/base/status_macros.h"

namespace weir {
namespace {

absl::Status RefuseHybrids(const ConfigReader& config) {
  WEIR_ASSIGN_OR_RETURN(const int64_t d_ff, config.Int("d_intermediate", 0, 1 << 20, 0));
  if (d_ff > 0) return config.Error("d_intermediate", "MLPs between the mixers are not supported");
  if (config.Has("attn_layer_idx")) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> layers, config.IntList("attn_layer_idx", 0, 1024));
    if (!layers.empty())
      return config.Error("attn_layer_idx", "hybrid models with softmax layers are not supported");
  }
  return absl::OkStatus();
}

void SetNames(const char* embedding, DecoderShape* shape) {
  shape->layers_prefix = "backbone.layers.";
  shape->embedding_name = embedding;
  shape->final_norm_name = "backbone.norm_f.weight";
  shape->head_name = "lm_head.weight";
  shape->mixer_norm_name = "norm.weight";
}

}  // namespace

absl::StatusOr<DecoderShape> ReadMambaShape(const ConfigReader& config, bool tied) {
  static constexpr std::string_view kActivations[] = {"silu", "swish"};
  DecoderShape shape;
  WEIR_ASSIGN_OR_RETURN(shape.d_model, config.Int("hidden_size", 1, kMaxMambaSize));
  WEIR_ASSIGN_OR_RETURN(shape.num_layers, config.Int("num_hidden_layers", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(shape.vocab_size, config.Int("vocab_size", 2, 1 << 24));
  WEIR_ASSIGN_OR_RETURN(const double eps, config.Float("layer_norm_epsilon", 0, 1, 1e-5));
  shape.norm_eps = static_cast<float>(eps);
  WEIR_RETURN_IF_ERROR(config.Enum("hidden_act", kActivations, "silu").status());
  // The residual stream is f32 whatever residual_in_fp32 says.
  WEIR_ASSIGN_OR_RETURN(shape.tied, TieWordEmbeddings(config, tied));
  SetNames("backbone.embeddings.weight", &shape);
  return shape;
}

absl::StatusOr<int64_t> ReadExpanded(const ConfigReader& config, int64_t d_model) {
  WEIR_ASSIGN_OR_RETURN(const double expand, config.Float("expand", 0.001, 64, 2));
  const auto width = static_cast<int64_t>(static_cast<double>(d_model) * expand);
  if (width < 1) return config.Error("expand", fmt::format("leaves nothing of a width of {}", d_model));
  return width;
}

absl::StatusOr<MambaSsmLayout> ReadMambaSsmLayout(const ConfigReader& config) {
  DecoderShape shape;
  WEIR_ASSIGN_OR_RETURN(shape.d_model, config.Int("d_model", 1, kMaxMambaSize));
  WEIR_ASSIGN_OR_RETURN(shape.num_layers, config.Int("n_layer", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(const int64_t vocab_size, config.Int("vocab_size", 2, 1 << 24));
  WEIR_ASSIGN_OR_RETURN(const int64_t multiple, config.Int("pad_vocab_size_multiple", 1, 1 << 16, 8));
  shape.vocab_size = (vocab_size + multiple - 1) / multiple * multiple;
  WEIR_ASSIGN_OR_RETURN(const bool rms_norm, config.Bool("rms_norm", true));
  if (!rms_norm) return config.Error("rms_norm", "false (LayerNorm) is not supported");
  WEIR_RETURN_IF_ERROR(RefuseHybrids(config));
  WEIR_ASSIGN_OR_RETURN(shape.tied, config.Bool("tie_embeddings", true));
  shape.norm_eps = 1e-5f;  // no key changes it
  SetNames("backbone.embedding.weight", &shape);
  WEIR_ASSIGN_OR_RETURN(std::optional<ConfigReader> ssm, config.Object("ssm_cfg"));
  if (!ssm) {
    WEIR_ASSIGN_OR_RETURN(ssm, ConfigReader::Parse("{}", config.source()));
  }
  return MambaSsmLayout{std::move(shape), *std::move(ssm)};
}

absl::Status CheckSsmKeys(const ConfigReader& ssm_cfg) {
  constexpr const char* kSameResult[] = {
      "layer",         "dt_min",           "dt_max",        "dt_init",
      "dt_scale",      "dt_init_floor",    "A_init_range",  "chunk_size",
      "use_fast_path", "use_mem_eff_path", "process_group", "sequence_parallel"};
  for (const char* key : kSameResult) ssm_cfg.Has(key);  // counts as reading it
  const std::vector<std::string> unread = ssm_cfg.UnreadKeys();
  if (unread.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: '{}' is not known and might make another mixer; remove it if it does not",
                  ssm_cfg.source(), unread.front()));
}

}  // namespace weir
