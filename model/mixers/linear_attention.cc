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
  int64_t key_dim = 0;       // of one head of q and k, before φ
  int64_t num_features = 0;  // FAVOR+'s; 0: φ = elu + 1
  int64_t head_dim = 0;
  int64_t conv_size = 0;  // 0: no convolution
  bool conv_bias = false;
  bool output_gate = false;
  bool normalized = true;  // divide by φ(q)ᵀz
  bool affine_norm = true;

  bool favor() const { return num_features > 0; }
  int64_t state_dim() const { return favor() ? num_features : key_dim; }  // d' of one head
  int64_t q_dim() const { return num_heads * key_dim; }
  int64_t k_dim() const { return num_kv_heads * key_dim; }
  int64_t v_dim() const { return num_kv_heads * head_dim; }
  int64_t o_dim() const { return num_heads * head_dim; }
  int64_t qkv_dim() const { return q_dim() + k_dim() + v_dim(); }
};

class LinearAttentionMixer final : public SequenceMixer {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceMixer>> Load(const LinearAttentionConfig& config,
                                                             const WeightLoader& loader,
                                                             const std::string& prefix) {
    WEIR_RETURN_IF_ERROR(
        loader.Require(kEluPlusOne, kFavor, kLinearRecurrence, kMatmul, kRmsNorm, kShortConv));
    WEIR_RETURN_IF_ERROR(
        loader.RequireCudaLimit(config.favor() ? "the number of features" : "the width of a key",
                                config.state_dim(), kMaxCudaRecurrenceDim));
    WEIR_RETURN_IF_ERROR(loader.RequireRecurrenceFits(config.state_dim(), config.head_dim,
                                                      config.num_heads / config.num_kv_heads));
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
    if (config.favor()) WEIR_RETURN_IF_ERROR(mixer->LoadFeatures(loader, attn + "features"));
    const std::string norm = attn + (config.output_gate ? "g_norm_swish_gate.weight" : "norm.weight");
    if (config.affine_norm) {
      WEIR_ASSIGN_OR_RETURN(mixer->norm_, loader.Vector(norm, config.head_dim));
    } else {
      WEIR_ASSIGN_OR_RETURN(mixer->norm_, loader.Upload(std::vector<float>(config.head_dim, 1.0f)));
    }
    return mixer;
  }

  std::vector<StateSpec> States() const override {
    const int64_t heads = config_.num_kv_heads;
    const int64_t state_dim = config_.state_dim();
    std::vector<StateSpec> specs = {{"s_outer", {heads, state_dim, config_.head_dim}},
                                    {"s_inner", {heads, state_dim, config_.head_dim}}};
    if (config_.normalized) {
      specs.push_back({"z_outer", {heads, state_dim}});
      specs.push_back({"z_inner", {heads, state_dim}});
    }
    if (config_.favor()) specs.push_back({"maximum", {heads}});
    if (config_.conv_size > 1) specs.push_back({"conv", {config_.conv_size - 1, config_.qkv_dim()}});
    return specs;
  }

  int64_t parameter_count() const override {
    return in_.n() * in_.k() + out_.n() * out_.k() + (config_.affine_norm ? config_.head_dim : 0) +
           config_.conv_size * config_.qkv_dim() + (config_.conv_bias ? config_.qkv_dim() : 0) +
           config_.num_features * config_.key_dim;
  }
  int64_t weight_bytes() const override {
    return in_.bytes() + out_.bytes() + norm_.bytes() + conv_.bytes() + conv_bias_.bytes() +
           features_.bytes();
  }

  int64_t WorkspaceBytes(int max_tokens, int64_t, int) const override {
    int64_t bytes = 0;
    const auto add = [&](int64_t columns) {
      bytes += Workspace::BytesFor(DType::kF32, max_tokens * columns);
    };
    add(in_.n());
    add(config_.o_dim());
    if (config_.conv_size > 0) add(config_.qkv_dim());
    if (config_.favor()) {
      add(config_.num_heads * config_.num_features);
      add(config_.num_kv_heads * config_.num_features);
      add(config_.num_kv_heads);
    }
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
              .bias = conv_bias_.view(),
              .window = config_.conv_size > 1 ? state.fixed.back() : TensorView(),
              .y = y},
             stream);
      qkv = y;
    }
    TensorView q = qkv.Columns(0, config_.q_dim());
    TensorView k = qkv.Columns(config_.q_dim(), config_.k_dim());
    TensorView log_decay;
    if (config_.favor()) {
      const TensorView phi_q = workspace.F32(num_tokens, config_.num_heads * config_.num_features);
      const TensorView phi_k = workspace.F32(num_tokens, config_.num_kv_heads * config_.num_features);
      log_decay = workspace.F32(num_tokens, config_.num_kv_heads);
      Launch(kFavor,
             {.batch = batch,
              .x = q,
              .features = features_.view(),
              .num_heads = config_.num_heads,
              .y = phi_q,
              .maximum = {},
              .log_decay = {}},
             stream);
      Launch(kFavor,
             {.batch = batch,
              .x = k,
              .features = features_.view(),
              .num_heads = config_.num_kv_heads,
              .y = phi_k,
              .maximum = state.fixed[4],
              .log_decay = log_decay},
             stream);
      q = phi_q;
      k = phi_k;
    } else {
      const TensorView qk = qkv.Columns(0, config_.q_dim() + config_.k_dim());
      Launch(kEluPlusOne, {.x = qk, .y = qk}, stream);
    }

    const TensorView o = workspace.F32(num_tokens, config_.o_dim());
    Launch(kLinearRecurrence,
           {.batch = batch,
            .q = q,
            .k = k,
            .v = qkv.Columns(config_.q_dim() + config_.k_dim(), config_.v_dim()),
            .log_decay = log_decay,
            .s_outer = state.fixed[0],
            .s_inner = state.fixed[1],
            .z_outer = config_.normalized ? state.fixed[2] : TensorView(),
            .z_inner = config_.normalized ? state.fixed[3] : TensorView(),
            .o = o,
            .num_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.key_dim))},
           stream);
    const TensorView gate =
        config_.output_gate ? projected.Columns(config_.qkv_dim(), config_.o_dim()) : TensorView();
    Launch(kRmsNorm, {.x = o, .weight = norm_.view(), .gate = gate, .y = o, .eps = config_.shape.norm_eps},
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
      WEIR_ASSIGN_OR_RETURN(const std::vector<float> values, loader.Values(name, {n}));
      bias.insert(bias.end(), values.begin(), values.end());
    }
    WEIR_ASSIGN_OR_RETURN(conv_bias_, loader.Upload(bias));
    return absl::OkStatus();
  }

  absl::Status LoadFeatures(const WeightLoader& loader, const std::string& name) {
    const int64_t m = config_.num_features;
    const int64_t d = config_.key_dim;
    WEIR_ASSIGN_OR_RETURN(const std::vector<float> rows, loader.Values(name, {m, d}));
    std::vector<float> columns(rows.size());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < d; ++j) columns[j * m + i] = rows[i * d + j];
    WEIR_ASSIGN_OR_RETURN(features_, loader.Upload(columns, d, m));
    return absl::OkStatus();
  }

  const LinearAttentionConfig config_;
  PackedMatrix in_;   // q, k, v and gate on top of each other: [qkv_dim (+ o_dim), d_model]
  PackedMatrix out_;  // [d_model, o_dim]
  DeviceTensor conv_;
  DeviceTensor conv_bias_;
  DeviceTensor norm_;      // f32 [head_dim]
  DeviceTensor features_;  // f32 [key_dim, num_features]
};

class LinearAttentionFamily final : public DecoderFamily {
 public:
  explicit LinearAttentionFamily(LinearAttentionConfig config) : config_(std::move(config)) {}
  std::string_view mixer_name() const override { return config_.favor() ? "performer" : "linear_attention"; }
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
  static constexpr std::string_view kGates[] = {"swish"};
  const int64_t d_model = out->shape.d_model;
  WEIR_ASSIGN_OR_RETURN(const int64_t num_heads, config.Int("num_heads", 1, 4096));
  WEIR_ASSIGN_OR_RETURN(const int64_t num_kv_heads, config.Int("num_kv_heads", 1, 4096, num_heads));
  if (num_heads % num_kv_heads != 0)
    return config.Error("num_kv_heads",
                        fmt::format("{} does not divide the {} heads", num_kv_heads, num_heads));
  out->num_heads = static_cast<int>(num_heads);
  out->num_kv_heads = static_cast<int>(num_kv_heads);
  WEIR_ASSIGN_OR_RETURN(out->key_dim, HeadWidth(config, "expand_k", d_model, num_heads));
  WEIR_ASSIGN_OR_RETURN(out->head_dim, HeadWidth(config, "expand_v", d_model, num_heads));
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

// All but the feature map.
absl::StatusOr<LinearAttentionConfig> ReadConfig(const ConfigReader& config) {
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
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadLinearAttentionFamily(const ConfigReader& config,
                                                                         const FamilyOptions&) {
  static constexpr std::string_view kFeatureMaps[] = {"elu"};
  WEIR_ASSIGN_OR_RETURN(LinearAttentionConfig out, ReadConfig(config));
  WEIR_RETURN_IF_ERROR(config.Enum("feature_map", kFeatureMaps).status());
  WEIR_ASSIGN_OR_RETURN(out.normalized, config.Bool("norm_feature_map", false));
  return std::make_unique<LinearAttentionFamily>(std::move(out));
}

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadPerformerFamily(const ConfigReader& config,
                                                                   const FamilyOptions&) {
  static constexpr std::string_view kFeatureMaps[] = {"favor+"};
  WEIR_ASSIGN_OR_RETURN(LinearAttentionConfig out, ReadConfig(config));
  WEIR_RETURN_IF_ERROR(config.Enum("feature_map", kFeatureMaps, "favor+").status());
  WEIR_ASSIGN_OR_RETURN(out.num_features, config.Int("num_features", 1, 65536));
  WEIR_ASSIGN_OR_RETURN(out.normalized, config.Bool("norm_feature_map", true));
  if (!out.normalized)
    return config.Error("norm_feature_map",
                        "false is not supported: only the quotient is free of the stabiliser");
  return std::make_unique<LinearAttentionFamily>(std::move(out));
}

}  // namespace weir
