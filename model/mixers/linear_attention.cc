#include "model/mixers/linear_attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/feature_map/feature_map.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/short_conv/short_conv.h"

namespace weir {
namespace {

struct LinearAttentionConfig {
  DecoderShape shape;
  int num_heads = 0;
  int num_kv_heads = 0;
  int64_t state_dim = 0;  // d' of one head
  int64_t head_dim = 0;
  int64_t conv_size = 0;  // 0: no convolution
  bool conv_bias = false;
  bool output_gate = false;
  bool normalized = true;  // divide by φ(q)ᵀz
  bool affine_norm = true;

  int64_t q_dim() const { return num_heads * state_dim; }
  int64_t k_dim() const { return num_kv_heads * state_dim; }
  int64_t v_dim() const { return num_kv_heads * head_dim; }
  int64_t o_dim() const { return num_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + k_dim() + v_dim(); }
};

class LinearAttentionMixer final : public SequenceMixer {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceMixer>> Load(const LinearAttentionConfig& config,
                                                             const WeightLoader& loader,
                                                             const std::string& prefix) {
    std::unique_ptr<LinearAttentionMixer> mixer(new LinearAttentionMixer(config));
    const std::string attn = prefix + "attn.";
    std::vector<MatrixPart> parts = {{attn + "q_proj.weight", config.q_dim()},
                                     {attn + "k_proj.weight", config.k_dim()},
                                     {attn + "v_proj.weight", config.v_dim()}};
    if (config.output_gate) parts.push_back({attn + "g_proj.weight", config.o_dim()});
    WEIR_ASSIGN_OR_RETURN(mixer->in_, loader.Matrix(parts, config.shape.d_model));
    WEIR_ASSIGN_OR_RETURN(mixer->out_,
                          loader.Matrix(attn + "o_proj.weight", config.shape.d_model, config.o_dim()));
    if (config.conv_size > 0) WEIR_RETURN_IF_ERROR(mixer->LoadConvolution(loader, attn));
    const std::string norm = attn + (config.output_gate ? "g_norm_swish_gate.weight" : "norm.weight");
    if (config.affine_norm) {
      WEIR_ASSIGN_OR_RETURN(mixer->norm_, loader.Vector(norm, config.head_dim));
      mixer->norm_weight_ = mixer->norm_.view();
    } else {
      WEIR_ASSIGN_OR_RETURN(mixer->norm_,
                            loader.Upload(std::vector<float>(config.head_dim, 1.0f), 1, config.head_dim));
      mixer->norm_weight_ = TensorView(mixer->norm_.view().raw(), DType::kF32, {config.head_dim});
    }
    return mixer;
  }

  std::vector<StateSpec> States() const override {
    const int64_t heads = config_.num_kv_heads;
    std::vector<StateSpec> specs = {{"s_outer", {heads, config_.state_dim, config_.head_dim}},
                                    {"s_inner", {heads, config_.state_dim, config_.head_dim}}};
    if (config_.normalized) {
      specs.push_back({"z_outer", {heads, config_.state_dim}});
      specs.push_back({"z_inner", {heads, config_.state_dim}});
    }
    if (config_.conv_size > 1) specs.push_back({"conv", {config_.conv_size - 1, config_.qkv_dim()}});
    return specs;
  }

  int64_t parameter_count() const override {
    return in_.n() * in_.k() + out_.n() * out_.k() + (config_.affine_norm ? config_.head_dim : 0) +
           config_.conv_size * config_.qkv_dim() + (config_.conv_bias ? config_.qkv_dim() : 0);
  }
  int64_t weight_bytes() const override {
    return in_.bytes() + out_.bytes() + norm_.bytes() + conv_.bytes() + conv_bias_.bytes();
  }

  int64_t WorkspaceBytes(int max_tokens, int64_t, int) const override {
    const int64_t columns[] = {in_.n(), config_.conv_size > 0 ? config_.qkv_dim() : 0, config_.o_dim()};
    int64_t bytes = 0;
    for (const int64_t n : columns) bytes += Workspace::BytesFor(DType::kF32, max_tokens * n);
    return bytes;
  }

  void Forward(const RaggedBatch& batch, const TensorView& x, const State& state, const TensorView& residual,
               Workspace& workspace, Stream& stream) const override {
    const Workspace::Scope scope(workspace);
    const int64_t num_tokens = x.num_rows();
    const TensorView projected = workspace.F32(num_tokens, in_.n());
    Launch(kMatmul, {.x = x, .weight = &in_, .y = projected, .bias = {}}, stream);
    TensorView qkv = projected.Columns(0, config_.qkv_dim());
    if (config_.conv_size > 0) {
      const TensorView y = workspace.F32(num_tokens, config_.qkv_dim());
      Launch(kShortConv,
             {.batch = batch,
              .x = qkv,
              .weight = conv_.view(),
              .bias = conv_bias_view_,
              .window = config_.conv_size > 1 ? state.fixed.back() : TensorView(),
              .y = y},
             stream);
      qkv = y;
    }
    const TensorView qk = qkv.Columns(0, config_.q_dim() + config_.k_dim());
    Launch(kEluPlusOne, {.x = qk, .y = qk}, stream);

    const TensorView o = workspace.F32(num_tokens, config_.o_dim());
    Launch(kLinearRecurrence,
           {.batch = batch,
            .q = qkv.Columns(0, config_.q_dim()),
            .k = qkv.Columns(config_.q_dim(), config_.k_dim()),
            .v = qkv.Columns(config_.q_dim() + config_.k_dim(), config_.v_dim()),
            .s_outer = state.fixed[0],
            .s_inner = state.fixed[1],
            .z_outer = config_.normalized ? state.fixed[2] : TensorView(),
            .z_inner = config_.normalized ? state.fixed[3] : TensorView(),
            .o = o,
            .num_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.state_dim))},
           stream);
    const TensorView gate =
        config_.output_gate ? projected.Columns(config_.qkv_dim(), config_.o_dim()) : TensorView();
    Launch(kRmsNorm, {.x = o, .weight = norm_weight_, .gate = gate, .y = o, .eps = config_.shape.norm_eps},
           stream);
    Launch(kMatmul, {.x = o, .weight = &out_, .y = residual, .bias = {}, .accumulate = true}, stream);
  }

 private:
  explicit LinearAttentionMixer(const LinearAttentionConfig& config) : config_(config) {}

  absl::Status LoadConvolution(const WeightLoader& loader, const std::string& attn) {
    const MatrixPart filters[] = {{attn + "q_conv1d.weight", config_.q_dim()},
                                  {attn + "k_conv1d.weight", config_.k_dim()},
                                  {attn + "v_conv1d.weight", config_.v_dim()}};
    WEIR_ASSIGN_OR_RETURN(conv_, loader.ConvFilter(filters, config_.conv_size));
    if (!config_.conv_bias) return absl::OkStatus();
    std::vector<float> bias;
    for (const auto& [name, n] : {MatrixPart{attn + "q_conv1d.bias", config_.q_dim()},
                                  MatrixPart{attn + "k_conv1d.bias", config_.k_dim()},
                                  MatrixPart{attn + "v_conv1d.bias", config_.v_dim()}}) {
      WEIR_ASSIGN_OR_RETURN(const WeightTensor tensor, loader.weights().Get(name, {n}));
      WEIR_RETURN_IF_ERROR(tensor.CheckFinite());
      const std::vector<float> values = tensor.ToF32();
      bias.insert(bias.end(), values.begin(), values.end());
    }
    WEIR_ASSIGN_OR_RETURN(conv_bias_, loader.Upload(bias, 1, config_.qkv_dim()));
    conv_bias_view_ = TensorView(conv_bias_.view().raw(), DType::kF32, {config_.qkv_dim()});
    return absl::OkStatus();
  }

  const LinearAttentionConfig config_;
  PackedMatrix in_;   // q, k, v and gate on top of each other: [qkv_dim (+ o_dim), d_model]
  PackedMatrix out_;  // [d_model, o_dim]
  DeviceTensor conv_;
  DeviceTensor conv_bias_;
  TensorView conv_bias_view_;
  DeviceTensor norm_;
  TensorView norm_weight_;  // f32 [head_dim]
};

class LinearAttentionFamily final : public DecoderFamily {
 public:
  explicit LinearAttentionFamily(LinearAttentionConfig config) : config_(std::move(config)) {}
  std::string_view mixer_name() const override { return "linear_attention"; }
  const DecoderShape& shape() const override { return config_.shape; }
  int prefill_granule() const override { return kChunkTokens; }
  double flops_per_position() const override { return 0; }
  absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMixer(const WeightLoader& loader,
                                                           const std::string& layer_prefix) const override {
    return LinearAttentionMixer::Load(config_, loader, layer_prefix);
  }

 private:
  const LinearAttentionConfig config_;
};

// `expand` times the hidden size, which the heads must divide.
absl::StatusOr<int64_t> HeadWidth(const ConfigReader& config, std::string_view expand_key, int64_t d_model,
                                  int64_t num_heads) {
  WEIR_ASSIGN_OR_RETURN(const double expand, config.Float(expand_key, 0.001, 64, 1.0));
  const auto width = static_cast<int64_t>(static_cast<double>(d_model) * expand);
  if (width < num_heads || width % num_heads != 0)
    return config.Error(expand_key,
                        fmt::format("{} columns cannot be shared among {} heads", width, num_heads));
  return width / num_heads;
}

absl::Status ReadMixerKeys(const ConfigReader& config, LinearAttentionConfig* out) {
  static constexpr std::string_view kFeatureMaps[] = {"elu"};
  static constexpr std::string_view kGates[] = {"swish"};
  const int64_t d_model = out->shape.d_model;
  WEIR_ASSIGN_OR_RETURN(const int64_t num_heads, config.Int("num_heads", 1, 4096));
  WEIR_ASSIGN_OR_RETURN(const int64_t num_kv_heads, config.Int("num_kv_heads", 1, 4096, num_heads));
  if (num_heads % num_kv_heads != 0)
    return config.Error("num_kv_heads",
                        fmt::format("{} does not divide the {} heads", num_kv_heads, num_heads));
  out->num_heads = static_cast<int>(num_heads);
  out->num_kv_heads = static_cast<int>(num_kv_heads);
  WEIR_ASSIGN_OR_RETURN(out->state_dim, HeadWidth(config, "expand_k", d_model, num_heads));
  WEIR_ASSIGN_OR_RETURN(out->head_dim, HeadWidth(config, "expand_v", d_model, num_heads));
  WEIR_RETURN_IF_ERROR(config.Enum("feature_map", kFeatureMaps).status());
  WEIR_ASSIGN_OR_RETURN(out->normalized, config.Bool("norm_feature_map", false));
  WEIR_ASSIGN_OR_RETURN(out->affine_norm, config.Bool("elementwise_affine", true));
  for (const std::string_view key : {"norm_q", "norm_k"}) {
    WEIR_ASSIGN_OR_RETURN(const bool value, config.Bool(key, false));
    if (value) return config.Error(key, "true is not supported");
  }
  if (config.Has("attn")) return config.Error("attn", "hybrid models with softmax layers are not supported");
  WEIR_ASSIGN_OR_RETURN(const bool short_conv, config.Bool("use_short_conv", false));
  if (short_conv) {
    WEIR_ASSIGN_OR_RETURN(out->conv_size, config.Int("conv_size", 1, kMaxShortConvWidth, 4));
    WEIR_ASSIGN_OR_RETURN(out->conv_bias, config.Bool("conv_bias", false));
  }
  WEIR_ASSIGN_OR_RETURN(out->output_gate, config.Bool("use_output_gate", false));
  return config.Enum("gate_fn", kGates, "swish").status();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadLinearAttentionFamily(const ConfigReader& config,
                                                                         const FamilyOptions&) {
  constexpr int64_t kMaxSize = 1 << 20;
  static constexpr std::string_view kActivations[] = {"swish", "silu"};
  LinearAttentionConfig out;
  DecoderShape& shape = out.shape;
  WEIR_ASSIGN_OR_RETURN(shape.d_model, config.Int("hidden_size", 1, kMaxSize));
  WEIR_ASSIGN_OR_RETURN(shape.num_layers, config.Int("num_hidden_layers", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(shape.vocab_size, config.Int("vocab_size", 2, 1 << 24));
  WEIR_ASSIGN_OR_RETURN(const auto d_ff, config.OptionalInt("intermediate_size", 1, kMaxSize));
  WEIR_ASSIGN_OR_RETURN(const int64_t ratio, config.Int("hidden_ratio", 1, 64, 4));
  // The layout's own default: two thirds of ratio · hidden_size, rounded up to a multiple of 256.
  shape.d_ff = d_ff.value_or((shape.d_model * ratio * 2 / 3 + 255) / 256 * 256);
  WEIR_ASSIGN_OR_RETURN(const double eps, config.Float("norm_eps", 0, 1, 1e-6));
  shape.norm_eps = static_cast<float>(eps);
  WEIR_RETURN_IF_ERROR(config.Enum("hidden_act", kActivations, "swish").status());
  WEIR_RETURN_IF_ERROR(ReadMixerKeys(config, &out));
  WEIR_ASSIGN_OR_RETURN(shape.tied, TieWordEmbeddings(config, /*family_default=*/false));

  shape.embedding_name = "model.embeddings.weight";
  shape.final_norm_name = "model.norm.weight";
  shape.head_name = "lm_head.weight";
  shape.mixer_norm_name = "attn_norm.weight";
  shape.mlp_norm_name = "mlp_norm.weight";
  shape.mlp_prefix = "mlp.";
  return std::make_unique<LinearAttentionFamily>(std::move(out));
}

}  // namespace weir
