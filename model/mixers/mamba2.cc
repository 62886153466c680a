#include "model/mixers/mamba2.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "model/mixers/mamba_layouts.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/discretize/discretize.h"
#include "runtime/ops/linear_recurrence/linear_recurrence.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/ops/skip/skip.h"

namespace weir {
namespace {

struct Mamba2Config {
  DecoderShape shape;
  int num_heads = 0;
  int num_groups = 0;  // B and C are shared by the heads of a group, and each group is normalised on its own
  int64_t head_dim = 0;   // P
  int64_t state_dim = 0;  // N
  int64_t conv_size = 0;
  bool conv_bias = true;
  bool bias = false;        // of the projections
  bool norm_first = false;  // the norm comes before the gate
  float min_dt = 0.0f;
  float max_dt = 0.0f;

  int64_t d_inner() const { return num_heads * head_dim; }
  int64_t bc_dim() const { return num_groups * state_dim; }
  int64_t conv_dim() const { return d_inner() + 2 * bc_dim(); }
  int64_t in_dim() const { return d_inner() + conv_dim() + num_heads; }
};

class Mamba2Mixer final : public SequenceMixer {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceMixer>> Load(const Mamba2Config& config,
                                                             const WeightLoader& loader,
                                                             const std::string& layer_prefix) {
    WEIR_RETURN_IF_ERROR(
        loader.Require(kDiscretize, kLinearRecurrence, kMatmul, kRmsNorm, kShortConv, kSkip));
    WEIR_RETURN_IF_ERROR(loader.RequireCudaLimit("state_size", config.state_dim, kMaxCudaRecurrenceDim));
    WEIR_RETURN_IF_ERROR(loader.RequireRecurrenceFits(config.state_dim, config.head_dim, 1));
    std::unique_ptr<Mamba2Mixer> mixer(new Mamba2Mixer(config));
    const std::string prefix = layer_prefix + "mixer.";
    const int64_t d_model = config.shape.d_model;
    const int64_t heads = config.num_heads;
    WEIR_ASSIGN_OR_RETURN(mixer->in_, loader.Matrix(prefix + "in_proj.weight", config.in_dim(), d_model));
    WEIR_ASSIGN_OR_RETURN(mixer->out_, loader.Matrix(prefix + "out_proj.weight", d_model, config.d_inner()));
    if (config.bias) {
      WEIR_ASSIGN_OR_RETURN(mixer->in_bias_, loader.Vector(prefix + "in_proj.bias", config.in_dim()));
      WEIR_ASSIGN_OR_RETURN(mixer->out_bias_, loader.Vector(prefix + "out_proj.bias", d_model));
    }
    const MatrixPart filter = {prefix + "conv1d.weight", config.conv_dim()};
    WEIR_ASSIGN_OR_RETURN(mixer->conv_, loader.ConvFilter(std::span(&filter, 1), config.conv_size));
    if (config.conv_bias) {
      WEIR_ASSIGN_OR_RETURN(mixer->conv_bias_, loader.Vector(prefix + "conv1d.bias", config.conv_dim()));
    }
    WEIR_ASSIGN_OR_RETURN(mixer->dt_bias_, loader.Vector(prefix + "dt_bias", heads));
    WEIR_ASSIGN_OR_RETURN(mixer->a_, LoadA(loader, prefix + "A_log", heads));
    WEIR_ASSIGN_OR_RETURN(mixer->d_, loader.Vector(prefix + "D", heads));
    WEIR_ASSIGN_OR_RETURN(mixer->norm_, loader.Vector(prefix + "norm.weight", config.d_inner()));
    return mixer;
  }

  std::vector<StateSpec> States() const override {
    // One level: a state that decays does not sum for ever.
    std::vector<StateSpec> specs = {{"s", {config_.num_heads, config_.state_dim, config_.head_dim}}};
    if (config_.conv_size > 1) specs.push_back({"conv", {config_.conv_size - 1, config_.conv_dim()}});
    return specs;
  }

  int64_t parameter_count() const override {
    const int64_t biases = (config_.bias ? config_.in_dim() + config_.shape.d_model : 0) +
                           (config_.conv_bias ? config_.conv_dim() : 0);
    return in_.n() * in_.k() + out_.n() * out_.k() + config_.conv_size * config_.conv_dim() + biases +
           3 * config_.num_heads + config_.d_inner();
  }
  int64_t weight_bytes() const override {
    int64_t bytes = in_.bytes() + out_.bytes();
    for (const DeviceTensor* tensor :
         {&in_bias_, &out_bias_, &conv_, &conv_bias_, &dt_bias_, &a_, &d_, &norm_})
      bytes += tensor->bytes();
    return bytes;
  }

  int64_t WorkspaceBytes(int max_tokens, int64_t, int) const override {
    int64_t bytes = 0;
    for (const int64_t n : {config_.in_dim(), config_.conv_dim(), config_.d_inner(), config_.d_inner(),
                            int64_t{config_.num_heads}})
      bytes += Workspace::BytesFor(DType::kF32, max_tokens * n);
    return bytes;
  }

  void Forward(const RaggedBatch& batch, const TensorView& x, const State& state, const TensorView& residual,
               Workspace& workspace, Stream& stream) const override {
    const Workspace::Scope scope(workspace);
    const int64_t num_tokens = x.num_rows();
    const int64_t d_inner = config_.d_inner();
    const int64_t bc_dim = config_.bc_dim();
    const TensorView projected = workspace.F32(num_tokens, config_.in_dim());  // z, x, B, C, dt
    Launch(kMatmul, {.x = x, .weight = &in_, .y = projected, .bias = in_bias_.view()}, stream);
    const TensorView xbc = workspace.F32(num_tokens, config_.conv_dim());
    Launch(kShortConv,
           {.batch = batch,
            .x = projected.Columns(d_inner, config_.conv_dim()),
            .weight = conv_.view(),
            .bias = conv_bias_.view(),
            .window = config_.conv_size > 1 ? state.fixed[1] : TensorView(),
            .y = xbc},
           stream);
    const TensorView inner = xbc.Columns(0, d_inner);
    const TensorView v = workspace.F32(num_tokens, d_inner);
    const TensorView log_decay = workspace.F32(num_tokens, config_.num_heads);
    Launch(kDiscretize,
           {.dt = projected.Columns(d_inner + config_.conv_dim(), config_.num_heads),
            .bias = dt_bias_.view(),
            .a = a_.view(),
            .x = inner,
            .log_decay = log_decay,
            .v = v,
            .min_dt = config_.min_dt,
            .max_dt = config_.max_dt},
           stream);
    const TensorView o = workspace.F32(num_tokens, d_inner);
    Launch(kLinearRecurrence,
           {.batch = batch,
            .q = xbc.Columns(d_inner + bc_dim, bc_dim),
            .k = xbc.Columns(d_inner, bc_dim),
            .v = v,
            .log_decay = log_decay,
            .s_outer = {},
            .s_inner = state.fixed[0],
            .z_outer = {},
            .z_inner = {},
            .o = o,
            .num_heads = config_.num_heads,
            .num_kv_heads = config_.num_heads,
            .num_k_heads = config_.num_groups},
           stream);
    Launch(kSkip, {.x = inner, .d = d_.view(), .y = o}, stream);
    Launch(kRmsNorm,
           {.x = o,
            .weight = norm_.view(),
            .gate = projected.Columns(0, d_inner),
            .y = o,
            .eps = config_.shape.norm_eps,
            .group_width = d_inner / config_.num_groups,
            .gate_first = !config_.norm_first},
           stream);
    Launch(kMatmul, {.x = o, .weight = &out_, .y = residual, .bias = out_bias_.view(), .accumulate = true},
           stream);
  }

 private:
  explicit Mamba2Mixer(const Mamba2Config& config) : config_(config) {}

  static absl::StatusOr<DeviceTensor> LoadA(const WeightLoader& loader, const std::string& name,
                                            int64_t heads) {
    WEIR_ASSIGN_OR_RETURN(std::vector<float> values, loader.Values(name, {heads}));
    for (float& value : values) {
      value = -std::exp(value);
      if (!std::isfinite(value))
        return absl::InvalidArgumentError(
            fmt::format("tensor '{}' holds a logarithm whose exponential is not finite", name));
    }
    return loader.Upload(values);
  }

  const Mamba2Config config_;
  PackedMatrix in_;   // [in_dim, d_model]
  PackedMatrix out_;  // [d_model, d_inner]
  DeviceTensor in_bias_, out_bias_;
  DeviceTensor conv_;  // [conv_size, conv_dim]
  DeviceTensor conv_bias_;
  DeviceTensor dt_bias_;  // [num_heads], like the next two
  DeviceTensor a_;
  DeviceTensor d_;
  DeviceTensor norm_;  // [d_inner]
};

class Mamba2Family final : public DecoderFamily {
 public:
  explicit Mamba2Family(Mamba2Config config) : config_(std::move(config)) {}
  std::string_view mixer_name() const override { return "mamba2"; }
  const DecoderShape& shape() const override { return config_.shape; }
  int prefill_granule() const override { return kChunkTokens; }
  double flops_per_position() const override { return 0; }
  absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMixer(const WeightLoader& loader,
                                                           const std::string& layer_prefix) const override {
    return Mamba2Mixer::Load(config_, loader, layer_prefix);
  }

 private:
  const Mamba2Config config_;
};

absl::Status ReadTimeStepLimit(const ConfigReader& config, std::string_view key, Mamba2Config* out) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> limit = {0.0, kInfinity};
  if (config.Has(key)) {
    WEIR_ASSIGN_OR_RETURN(limit, config.FloatList(key, 0.0, kInfinity));
  }
  if (limit.size() != 2 || limit[0] > limit[1] || limit[0] > std::numeric_limits<float>::max())
    return config.Error(key, "must be the least time step, which is finite, and the greatest");
  out->min_dt = static_cast<float>(limit[0]);
  out->max_dt = static_cast<float>(limit[1]);
  return absl::OkStatus();
}

absl::Status SetHeads(const ConfigReader& config, std::string_view groups_key, int64_t num_heads,
                      int64_t num_groups, Mamba2Config* out) {
  if (num_heads % num_groups != 0)
    return config.Error(groups_key, fmt::format("{} does not divide the {} heads", num_groups, num_heads));
  out->num_heads = static_cast<int>(num_heads);
  out->num_groups = static_cast<int>(num_groups);
  return absl::OkStatus();
}

absl::Status ReadHeads(const ConfigReader& config, Mamba2Config* out) {
  WEIR_ASSIGN_OR_RETURN(const int64_t num_heads, config.Int("num_heads", 1, 65536));
  WEIR_ASSIGN_OR_RETURN(out->head_dim, config.Int("head_dim", 1, 4096, 64));
  WEIR_ASSIGN_OR_RETURN(const int64_t num_groups, config.Int("n_groups", 1, 65536, 8));
  WEIR_ASSIGN_OR_RETURN(const int64_t expanded, ReadExpanded(config, out->shape.d_model));
  WEIR_ASSIGN_OR_RETURN(const auto intermediate, config.OptionalInt("intermediate_size", 1, kMaxMambaSize));
  if (num_heads * out->head_dim != intermediate.value_or(expanded))
    return config.Error("num_heads", fmt::format("{} heads of {} are not the {} inner columns", num_heads,
                                                 out->head_dim, intermediate.value_or(expanded)));
  return SetHeads(config, "n_groups", num_heads, num_groups, out);
}

// In mamba_ssm the heads follow from the inner width.
absl::Status ReadSsmHeads(const ConfigReader& ssm, Mamba2Config* out) {
  WEIR_ASSIGN_OR_RETURN(const int64_t expanded, ReadExpanded(ssm, out->shape.d_model));
  WEIR_ASSIGN_OR_RETURN(const auto d_ssm, ssm.OptionalInt("d_ssm", 1, kMaxMambaSize));
  if (d_ssm.value_or(expanded) != expanded)
    return ssm.Error("d_ssm", "an MLP beside the state space is not supported");
  WEIR_ASSIGN_OR_RETURN(out->head_dim, ssm.Int("headdim", 1, 4096, 64));
  WEIR_ASSIGN_OR_RETURN(const int64_t num_groups, ssm.Int("ngroups", 1, 65536, 1));
  if (expanded < out->head_dim || expanded % out->head_dim != 0)
    return ssm.Error("headdim",
                     fmt::format("{} does not divide the {} inner columns", out->head_dim, expanded));
  return SetHeads(ssm, "ngroups", expanded / out->head_dim, num_groups, out);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMamba2Family(const ConfigReader& config,
                                                                const FamilyOptions&) {
  Mamba2Config out;
  WEIR_ASSIGN_OR_RETURN(out.shape, ReadMambaShape(config, /*tied=*/false));
  WEIR_RETURN_IF_ERROR(ReadHeads(config, &out));
  WEIR_ASSIGN_OR_RETURN(out.state_dim, config.Int("state_size", 1, 4096, 128));
  WEIR_ASSIGN_OR_RETURN(out.conv_size, config.Int("conv_kernel", 1, kMaxShortConvWidth, 4));
  WEIR_RETURN_IF_ERROR(ReadTimeStepLimit(config, "time_step_limit", &out));
  WEIR_ASSIGN_OR_RETURN(out.bias, config.Bool("use_bias", false));
  WEIR_ASSIGN_OR_RETURN(out.conv_bias, config.Bool("use_conv_bias", true));
  // Hugging Face's own code ignores this key: what the mixer's authors mean by it counts here.
  WEIR_ASSIGN_OR_RETURN(out.norm_first, config.Bool("norm_before_gate", false));
  WEIR_ASSIGN_OR_RETURN(const bool rms_norm, config.Bool("rms_norm", true));
  if (!rms_norm) return config.Error("rms_norm", "false is not supported");
  return std::make_unique<Mamba2Family>(std::move(out));
}

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaSsm2Family(const ConfigReader& config,
                                                                   const FamilyOptions&) {
  Mamba2Config out;
  WEIR_ASSIGN_OR_RETURN(MambaSsmLayout layout, ReadMambaSsmLayout(config));
  const ConfigReader& ssm = layout.ssm_cfg;
  out.shape = std::move(layout.shape);
  WEIR_RETURN_IF_ERROR(ReadSsmHeads(ssm, &out));
  WEIR_ASSIGN_OR_RETURN(out.state_dim, ssm.Int("d_state", 1, 4096, 128));
  WEIR_ASSIGN_OR_RETURN(out.conv_size, ssm.Int("d_conv", 1, kMaxShortConvWidth, 4));
  WEIR_RETURN_IF_ERROR(ReadTimeStepLimit(ssm, "dt_limit", &out));
  WEIR_ASSIGN_OR_RETURN(out.bias, ssm.Bool("bias", false));
  WEIR_ASSIGN_OR_RETURN(out.conv_bias, ssm.Bool("conv_bias", true));
  WEIR_ASSIGN_OR_RETURN(out.norm_first, ssm.Bool("norm_before_gate", false));
  WEIR_ASSIGN_OR_RETURN(const bool rms_norm, ssm.Bool("rmsnorm", true));
  if (!rms_norm) return ssm.Error("rmsnorm", "false is not supported");
  WEIR_ASSIGN_OR_RETURN(const bool wide_skip, ssm.Bool("D_has_hdim", false));
  if (wide_skip) return ssm.Error("D_has_hdim", "true is not supported");
  WEIR_RETURN_IF_ERROR(CheckSsmKeys(ssm));
  return std::make_unique<Mamba2Family>(std::move(out));
}

}  // namespace weir
