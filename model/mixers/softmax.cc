#include "model/mixers/softmax.h"

#include <cmath>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/rope/rope.h"

namespace weir {
namespace {

struct LlamaConfig {
  DecoderShape shape;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  double rope_theta = 10000;
  std::optional<DType> kv_dtype;
};

class SoftmaxMixer final : public SequenceMixer {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceMixer>> Load(const LlamaConfig& config,
                                                             const WeightLoader& loader,
                                                             const std::string& prefix) {
    WEIR_RETURN_IF_ERROR(loader.Require(kAttention, kKvWrite, kMatmul, kRope));
    WEIR_RETURN_IF_ERROR(loader.RequireCudaLimit("head_dim", config.head_dim, kMaxCudaHeadDim));
    std::unique_ptr<SoftmaxMixer> mixer(new SoftmaxMixer(config));
    const int64_t d_model = config.shape.d_model;
    const int64_t q_dim = mixer->q_dim();
    const int64_t kv_dim = mixer->kv_dim();
    const std::string attn = prefix + "self_attn.";
    const MatrixPart parts[] = {
        {attn + "q_proj.weight", q_dim}, {attn + "k_proj.weight", kv_dim}, {attn + "v_proj.weight", kv_dim}};
    WEIR_ASSIGN_OR_RETURN(mixer->qkv_, loader.Matrix(parts, d_model));
    // A 16-bit cache beside f32 weights would be the coarsest step of the whole computation.
    mixer->kv_dtype_ =
        config.kv_dtype.value_or(mixer->qkv_.dtype() == DType::kF32 ? DType::kF32 : DType::kF16);
    WEIR_ASSIGN_OR_RETURN(mixer->out_, loader.Matrix(attn + "o_proj.weight", d_model, q_dim));
    std::vector<float> inv_freq(config.head_dim / 2);
    for (size_t i = 0; i < inv_freq.size(); ++i)
      inv_freq[i] =
          static_cast<float>(std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / config.head_dim));
    WEIR_ASSIGN_OR_RETURN(mixer->inv_freq_storage_, loader.Upload(inv_freq, 1, config.head_dim / 2));
    mixer->inv_freq_ = TensorView(mixer->inv_freq_storage_.view().raw(), DType::kF32, {config.head_dim / 2});
    return mixer;
  }

  PagedSpec Paged() const override { return {1, config_.num_kv_heads, config_.head_dim, kv_dtype_}; }
  int64_t parameter_count() const override { return qkv_.n() * qkv_.k() + out_.n() * out_.k(); }
  int64_t weight_bytes() const override { return qkv_.bytes() + out_.bytes(); }

  int64_t WorkspaceBytes(int max_tokens, int64_t max_positions, int num_threads) const override {
    return Workspace::BytesFor(DType::kF32, max_tokens * qkv_.n()) +
           Workspace::BytesFor(DType::kF32, max_tokens * q_dim()) +
           Workspace::BytesFor(DType::kF32, ScratchElements(max_tokens, max_positions, num_threads));
  }

  void Forward(const RaggedBatch& batch, const TensorView& x, const State& state, const TensorView& residual,
               Workspace& workspace, Stream& stream) const override {
    const Workspace::Scope scope(workspace);
    const int64_t num_tokens = x.num_rows();
    const TensorView qkv = workspace.F32(num_tokens, qkv_.n());
    Launch(kMatmul, {.x = x, .weight = &qkv_, .y = qkv, .bias = {}}, stream);
    const TensorView q = qkv.Columns(0, q_dim());
    const TensorView k = qkv.Columns(q_dim(), kv_dim());
    const TensorView v = qkv.Columns(q_dim() + kv_dim(), kv_dim());
    // Query and key heads lie side by side, so one call turns both.
    Launch(kRope,
           {.batch = batch,
            .x = qkv.Columns(0, q_dim() + kv_dim()),
            .inv_freq = inv_freq_,
            .num_heads = config_.num_heads + config_.num_kv_heads},
           stream);
    Launch(kKvWrite, {.batch = batch, .k = k, .v = v, .kv = *state.paged}, stream);
    const TensorView o = workspace.F32(num_tokens, q_dim());
    const int64_t scratch = workspace.FreeElements(DType::kF32);
    Launch(kAttention,
           {.batch = batch,
            .q = q,
            .kv = *state.paged,
            .o = o,
            .scratch = workspace.Allocate(DType::kF32, {scratch}),
            .num_heads = config_.num_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim))},
           stream);
    Launch(kMatmul, {.x = o, .weight = &out_, .y = residual, .bias = {}, .accumulate = true}, stream);
  }

 private:
  explicit SoftmaxMixer(const LlamaConfig& config) : config_(config) {}
  int64_t q_dim() const { return int64_t{config_.num_heads} * config_.head_dim; }
  int64_t kv_dim() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }
  int64_t ScratchElements(int max_tokens, int64_t max_positions, int num_threads) const {
    return AttentionScratchElements(max_tokens, max_positions, config_.num_heads, config_.head_dim,
                                    num_threads);
  }

  const LlamaConfig config_;
  DType kv_dtype_ = DType::kF32;
  PackedMatrix qkv_;  // [(num_heads + 2 * num_kv_heads) * head_dim, d_model]
  PackedMatrix out_;  // [d_model, num_heads * head_dim]
  DeviceTensor inv_freq_storage_;
  TensorView inv_freq_;  // f32 [head_dim / 2]
};

class LlamaFamily final : public DecoderFamily {
 public:
  explicit LlamaFamily(LlamaConfig config) : config_(std::move(config)) {}
  std::string_view mixer_name() const override { return "softmax"; }
  const DecoderShape& shape() const override { return config_.shape; }
  int prefill_granule() const override {
    return 1;
  }  // attention gives the same bits however a sequence is cut
  double flops_per_position() const override { return 4.0 * config_.num_heads * config_.head_dim; }
  absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMixer(const WeightLoader& loader,
                                                           const std::string& layer_prefix) const override {
    return SoftmaxMixer::Load(config_, loader, layer_prefix);
  }

 private:
  const LlamaConfig config_;
};

// Plain rotary embedding only: "rope_scaling" null, or a "rope_type" of "default" in either spelling.
absl::Status ReadRope(const ConfigReader& config, LlamaConfig* out) {
  WEIR_ASSIGN_OR_RETURN(out->rope_theta, config.Float("rope_theta", 1, 1e12, 10000));
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    WEIR_ASSIGN_OR_RETURN(const std::optional<ConfigReader> rope, config.Object(key));
    if (!rope) continue;
    static constexpr std::string_view kAllowed[] = {"default"};
    WEIR_RETURN_IF_ERROR(rope->Enum(rope->Has("type") ? "type" : "rope_type", kAllowed, "default").status());
    WEIR_ASSIGN_OR_RETURN(out->rope_theta, rope->Float("rope_theta", 1, 1e12, out->rope_theta));
  }
  return absl::OkStatus();
}

absl::Status RefuseTrue(const ConfigReader& config, std::string_view key) {
  WEIR_ASSIGN_OR_RETURN(const bool value, config.Bool(key, false));
  return value ? config.Error(key, "true is not supported; only projections without bias are")
               : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadLlamaFamily(const ConfigReader& config,
                                                               const FamilyOptions& options) {
  constexpr int64_t kMaxSize = 1 << 20;
  static constexpr std::string_view kActivations[] = {"silu"};
  LlamaConfig out;
  DecoderShape& shape = out.shape;
  WEIR_ASSIGN_OR_RETURN(shape.d_model, config.Int("hidden_size", 1, kMaxSize));
  WEIR_ASSIGN_OR_RETURN(shape.num_layers, config.Int("num_hidden_layers", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(shape.vocab_size, config.Int("vocab_size", 2, 1 << 24));
  WEIR_ASSIGN_OR_RETURN(shape.d_ff, config.Int("intermediate_size", 1, kMaxSize));
  WEIR_ASSIGN_OR_RETURN(shape.context_limit,
                        config.Int("max_position_embeddings", 1, int64_t{1} << 30, 2048));
  WEIR_ASSIGN_OR_RETURN(const double eps, config.Float("rms_norm_eps", 0, 1, 1e-6));
  shape.norm_eps = static_cast<float>(eps);
  WEIR_ASSIGN_OR_RETURN(const int64_t num_heads, config.Int("num_attention_heads", 1, 4096));
  WEIR_ASSIGN_OR_RETURN(const int64_t num_kv_heads, config.Int("num_key_value_heads", 1, 4096, num_heads));
  if (num_heads % num_kv_heads != 0)
    return config.Error("num_key_value_heads",
                        fmt::format("{} does not divide the {} heads", num_kv_heads, num_heads));
  WEIR_ASSIGN_OR_RETURN(const auto head_dim, config.OptionalInt("head_dim", 2, 1024));
  if (!head_dim && shape.d_model % num_heads != 0)
    return config.Error("num_attention_heads",
                        fmt::format("{} does not divide hidden_size {}", num_heads, shape.d_model));
  out.num_heads = static_cast<int>(num_heads);
  out.num_kv_heads = static_cast<int>(num_kv_heads);
  out.head_dim = static_cast<int>(head_dim.value_or(shape.d_model / num_heads));
  if (out.head_dim % 2 != 0)
    return config.Error("head_dim", fmt::format("{} is odd; rotary embedding needs pairs", out.head_dim));
  WEIR_RETURN_IF_ERROR(ReadRope(config, &out));
  WEIR_RETURN_IF_ERROR(config.Enum("hidden_act", kActivations, "silu").status());
  WEIR_RETURN_IF_ERROR(RefuseTrue(config, "attention_bias"));
  WEIR_RETURN_IF_ERROR(RefuseTrue(config, "mlp_bias"));
  WEIR_RETURN_IF_ERROR(config.Int("pretraining_tp", 1, 1, 1).status());
  WEIR_ASSIGN_OR_RETURN(shape.tied, TieWordEmbeddings(config, /*family_default=*/false));

  shape.embedding_name = "model.embed_tokens.weight";
  shape.final_norm_name = "model.norm.weight";
  shape.head_name = "lm_head.weight";
  shape.mixer_norm_name = "input_layernorm.weight";
  shape.mlp_norm_name = "post_attention_layernorm.weight";
  shape.mlp_prefix = "mlp.";
  out.kv_dtype = options.kv_dtype;
  return std::make_unique<LlamaFamily>(std::move(out));
}

}  // namespace weir
