#include "model/mixers/mamba_ssm_layout.h"

#include <optional>
#include <utility>

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

}  // namespace

absl::StatusOr<MambaSsmLayout> ReadMambaSsmLayout(const ConfigReader& config) {
  DecoderShape shape;
  WEIR_ASSIGN_OR_RETURN(shape.d_model, config.Int("d_model", 1, 1 << 20));
  WEIR_ASSIGN_OR_RETURN(shape.num_layers, config.Int("n_layer", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(const int64_t vocab_size, config.Int("vocab_size", 2, 1 << 24));
  WEIR_ASSIGN_OR_RETURN(const int64_t multiple, config.Int("pad_vocab_size_multiple", 1, 1 << 16, 8));
  shape.vocab_size = (vocab_size + multiple - 1) / multiple * multiple;
  WEIR_ASSIGN_OR_RETURN(const bool rms_norm, config.Bool("rms_norm", true));
  if (!rms_norm) return config.Error("rms_norm", "false (LayerNorm) is not supported");
  WEIR_RETURN_IF_ERROR(RefuseHybrids(config));
  WEIR_ASSIGN_OR_RETURN(shape.tied, config.Bool("tie_embeddings", true));
  shape.norm_eps = 1e-5f;  // no key changes it
  shape.layers_prefix = "backbone.layers.";
  shape.embedding_name = "backbone.embedding.weight";
  shape.final_norm_name = "backbone.norm_f.weight";
  shape.head_name = "lm_head.weight";
  shape.mixer_norm_name = "norm.weight";
  WEIR_ASSIGN_OR_RETURN(std::optional<ConfigReader> ssm, config.Object("ssm_cfg"));
  if (!ssm) {
    WEIR_ASSIGN_OR_RETURN(ssm, ConfigReader::Parse("{}", config.source()));
  }
  return MambaSsmLayout{std::move(shape), *std::move(ssm)};
}

}  // namespace weir
