#include "model/mixers/mamba.h"

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "model/config/model_config.h"
#include "model/mixers/mamba_layouts.h"
#include "model/mixers/mixer.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/rms_norm/rms_norm.h"
#include "runtime/ops/selective_scan/selective_scan.h"
#include "runtime/ops/short_conv/short_conv.h"

namespace weir {
namespace {

struct MambaConfig {
  DecoderShape shape;
  int64_t d_inner = 0;
  int64_t state_dim = 0;
  int64_t conv_size = 0;
  int64_t dt_rank = 0;
  bool bias = false;  // of the projections in and out
  bool conv_bias = true;
  std::optional<float> rms_eps;  // where dt, B and C are normalised

  int64_t dbc_dim() const { return dt_rank + 2 * state_dim; }
};

class MambaMixer final : public SequenceMixer {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceMixer>> Load(const MambaConfig& config,
                                                             const WeightLoader& loader,
                                                             const std::string& prefix) {
    WEIR_RETURN_IF_ERROR(loader.Require(kMatmul, kRmsNorm, kSelectiveScan, kShortConv));
    std::unique_ptr<MambaMixer> mixer(new MambaMixer(config));
    WEIR_RETURN_IF_ERROR(mixer->LoadProjections(loader, prefix + "mixer."));
    WEIR_RETURN_IF_ERROR(mixer->LoadScan(loader, prefix + "mixer."));
    return mixer;
  }

  std::vector<StateSpec> States() const override {
    std::vector<StateSpec> specs = {{"ssm", {config_.state_dim, config_.d_inner}}};
    if (config_.conv_size > 1) specs.push_back({"conv", {config_.conv_size - 1, config_.d_inner}});
    return specs;
  }

  int64_t parameter_count() const override {
    const int64_t per_channel = config_.conv_size + (config_.conv_bias ? 1 : 0) + config_.state_dim + 2;
    return in_.n() * in_.k() + dbc_.n() * dbc_.k() + dt_.n() * dt_.k() + out_.n() * out_.k() +
           per_channel * config_.d_inner + (config_.bias ? in_.n() + out_.n() : 0);
  }
  int64_t weight_bytes() const override {
    return in_.bytes() + dbc_.bytes() + dt_.bytes() + out_.bytes() + in_bias_.bytes() + out_bias_.bytes() +
           conv_.bytes() + conv_bias_.bytes() + a_.bytes() + d_.bytes() + dt_bias_.bytes();
  }

  int64_t WorkspaceBytes(int max_tokens, int64_t, int) const override {
    int64_t bytes = 0;
    for (const int64_t n : {2 * config_.d_inner, config_.d_inner, config_.d_inner, config_.dbc_dim()})
      bytes += Workspace::BytesFor(DType::kF32, max_tokens * n);
    return bytes;
  }

  void Forward(const RaggedBatch& batch, const TensorView& x, const State& state, const TensorView& residual,
               Workspace& workspace, Stream& stream) const override {
    const Workspace::Scope scope(workspace);
    const int64_t num_tokens = x.num_rows();
    const int64_t d_inner = config_.d_inner;
    const TensorView uz = workspace.F32(num_tokens, 2 * d_inner);
    Launch(kMatmul, {.x = x, .weight = &in_, .y = uz, .bias = in_bias_.view()}, stream);
    const TensorView u = workspace.F32(num_tokens, d_inner);
    Launch(kShortConv,
           {.batch = batch,
            .x = uz.Columns(0, d_inner),
            .weight = conv_.view(),
            .bias = conv_bias_.view(),
            .window = config_.conv_size > 1 ? state.fixed[1] : TensorView(),
            .y = u},
           stream);

    const TensorView dbc = workspace.F32(num_tokens, config_.dbc_dim());
    Launch(kMatmul, {.x = u, .weight = &dbc_, .y = dbc, .bias = {}}, stream);
    const TensorView low_rank = dbc.Columns(0, config_.dt_rank);
    const TensorView b = dbc.Columns(config_.dt_rank, config_.state_dim);
    const TensorView c = dbc.Columns(config_.dt_rank + config_.state_dim, config_.state_dim);
    if (config_.rms_eps) {
      for (const auto& [part, ones] : {std::pair(low_rank, &dt_ones_), {b, &state_ones_}, {c, &state_ones_}})
        Launch(kRmsNorm, {.x = part, .weight = ones->view(), .gate = {}, .y = part, .eps = *config_.rms_eps},
               stream);
    }
    const TensorView dt = workspace.F32(num_tokens, d_inner);
    Launch(kMatmul, {.x = low_rank, .weight = &dt_, .y = dt, .bias = {}}, stream);
    Launch(kSelectiveScan,
           {.batch = batch,
            .u = u,
            .dt = dt,
            .dt_bias = dt_bias_.view(),
            .a = a_.view(),
            .b = b,
            .c = c,
            .d = d_.view(),
            .z = uz.Columns(d_inner, d_inner),
            .state = state.fixed[0],
            .y = dt},
           stream);
    Launch(kMatmul, {.x = dt, .weight = &out_, .y = residual, .bias = out_bias_.view(), .accumulate = true},
           stream);
  }

 private:
  explicit MambaMixer(const MambaConfig& config) : config_(config) {}

  absl::Status LoadProjections(const WeightLoader& loader, const std::string& mixer) {
    const int64_t d_model = config_.shape.d_model;
    const int64_t d_inner = config_.d_inner;
    WEIR_ASSIGN_OR_RETURN(in_, loader.Matrix(mixer + "in_proj.weight", 2 * d_inner, d_model));
    WEIR_ASSIGN_OR_RETURN(dbc_, loader.Matrix(mixer + "x_proj.weight", config_.dbc_dim(), d_inner));
    WEIR_ASSIGN_OR_RETURN(dt_, loader.Matrix(mixer + "dt_proj.weight", d_inner, config_.dt_rank));
    WEIR_ASSIGN_OR_RETURN(out_, loader.Matrix(mixer + "out_proj.weight", d_model, d_inner));
    if (!config_.bias) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(in_bias_, loader.Vector(mixer + "in_proj.bias", 2 * d_inner));
    WEIR_ASSIGN_OR_RETURN(out_bias_, loader.Vector(mixer + "out_proj.bias", d_model));
    return absl::OkStatus();
  }

  absl::Status LoadScan(const WeightLoader& loader, const std::string& mixer) {
    const int64_t d_inner = config_.d_inner;
    const MatrixPart filter = {mixer + "conv1d.weight", d_inner};
    WEIR_ASSIGN_OR_RETURN(conv_, loader.ConvFilter(std::span(&filter, 1), config_.conv_size));
    if (config_.conv_bias) {
      WEIR_ASSIGN_OR_RETURN(conv_bias_, loader.Vector(mixer + "conv1d.bias", d_inner));
    }
    WEIR_ASSIGN_OR_RETURN(dt_bias_, loader.Vector(mixer + "dt_proj.bias", d_inner));
    WEIR_ASSIGN_OR_RETURN(d_, loader.Vector(mixer + "D", d_inner));
    WEIR_RETURN_IF_ERROR(LoadA(loader, mixer + "A_log"));
    if (!config_.rms_eps) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(dt_ones_, loader.Upload(std::vector<float>(config_.dt_rank, 1.0f)));
    WEIR_ASSIGN_OR_RETURN(state_ones_, loader.Upload(std::vector<float>(config_.state_dim, 1.0f)));
    return absl::OkStatus();
  }

  // A = -exp(A_log), transposed so that channels lie side by side as they do in everything else.
  absl::Status LoadA(const WeightLoader& loader, const std::string& name) {
    const int64_t state_dim = config_.state_dim;
    WEIR_ASSIGN_OR_RETURN(const WeightTensor log, loader.weights().Get(name, {config_.d_inner, state_dim}));
    WEIR_RETURN_IF_ERROR(log.CheckFinite());
    std::vector<float> a(state_dim * config_.d_inner);
    for (int64_t channel = 0; channel < config_.d_inner; ++channel) {
      for (int64_t n = 0; n < state_dim; ++n) {
        const double value = -std::exp(static_cast<double>(log.At(channel * state_dim + n)));
        if (value < -std::numeric_limits<float>::max())
          return absl::InvalidArgumentError(fmt::format("tensor '{}' holds {}, whose exponential is infinite",
                                                        name, log.At(channel * state_dim + n)));
        a[n * config_.d_inner + channel] = static_cast<float>(value);
      }
    }
    WEIR_ASSIGN_OR_RETURN(a_, loader.Upload(a, state_dim, config_.d_inner));
    return absl::OkStatus();
  }

  const MambaConfig config_;
  PackedMatrix in_;   // u and z: [2 * d_inner, d_model]
  PackedMatrix dbc_;  // dt's factor, B and C: [dt_rank + 2 * state_dim, d_inner]
  PackedMatrix dt_;   // [d_inner, dt_rank]
  PackedMatrix out_;  // [d_model, d_inner]
  DeviceTensor in_bias_;
  DeviceTensor out_bias_;
  DeviceTensor conv_;       // f32 [conv_size, d_inner]
  DeviceTensor conv_bias_;  // f32 [d_inner], like the next two
  DeviceTensor dt_bias_;
  DeviceTensor d_;
  DeviceTensor a_;        // f32 [state_dim, d_inner]
  DeviceTensor dt_ones_;  // f32 [dt_rank], like the next only where dt, B and C are normalised
  DeviceTensor state_ones_;
};

class MambaFamily final : public DecoderFamily {
 public:
  explicit MambaFamily(MambaConfig config) : config_(std::move(config)) {}
  std::string_view mixer_name() const override { return "mamba"; }
  const DecoderShape& shape() const override { return config_.shape; }
  // Convolution and scan give the same bits however a sequence is cut.
  int prefill_granule() const override { return 1; }
  double flops_per_position() const override { return 0; }
  absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMixer(const WeightLoader& loader,
                                                           const std::string& layer_prefix) const override {
    return MambaMixer::Load(config_, loader, layer_prefix);
  }

 private:
  const MambaConfig config_;
};

// "auto" is a sixteenth of d_model, rounded up.
absl::StatusOr<int64_t> DtRank(const ConfigReader& config, std::string_view key, int64_t d_model) {
  const int64_t automatic = (d_model + 15) / 16;
  if (!config.Has(key)) return automatic;
  if (const auto rank = config.Int(key, 1, kMaxMambaSize); rank.ok()) return rank;
  if (const auto text = config.String(key); text.ok() && *text == "auto") return automatic;
  return config.Error(key, fmt::format("must be \"auto\" or a whole number from 1 to {}", kMaxMambaSize));
}

absl::StatusOr<MambaConfig> ReadHuggingFace(const ConfigReader& config) {
  MambaConfig out;
  WEIR_ASSIGN_OR_RETURN(out.shape, ReadMambaShape(config, /*tied=*/true));
  // intermediate_size goes before expand where a folder has both.
  WEIR_ASSIGN_OR_RETURN(const auto d_inner, config.OptionalInt("intermediate_size", 1, kMaxMambaSize));
  WEIR_ASSIGN_OR_RETURN(const int64_t expanded, ReadExpanded(config, out.shape.d_model));
  out.d_inner = d_inner.value_or(expanded);
  WEIR_ASSIGN_OR_RETURN(out.state_dim, config.Int("state_size", 1, kMaxScanStateDim, 16));
  WEIR_ASSIGN_OR_RETURN(out.conv_size, config.Int("conv_kernel", 1, kMaxShortConvWidth, 4));
  WEIR_ASSIGN_OR_RETURN(out.dt_rank, DtRank(config, "time_step_rank", out.shape.d_model));
  WEIR_ASSIGN_OR_RETURN(out.bias, config.Bool("use_bias", false));
  WEIR_ASSIGN_OR_RETURN(out.conv_bias, config.Bool("use_conv_bias", true));
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaFamily(const ConfigReader& config,
                                                               const FamilyOptions&) {
  WEIR_ASSIGN_OR_RETURN(MambaConfig out, ReadHuggingFace(config));
  return std::make_unique<MambaFamily>(std::move(out));
}

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadFalconMambaFamily(const ConfigReader& config,
                                                                     const FamilyOptions&) {
  WEIR_ASSIGN_OR_RETURN(MambaConfig out, ReadHuggingFace(config));
  WEIR_ASSIGN_OR_RETURN(const double eps, config.Float("mixer_rms_eps", 0, 1, 1e-6));
  out.rms_eps = static_cast<float>(eps);
  return std::make_unique<MambaFamily>(std::move(out));
}

absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaSsmFamily(const ConfigReader& config,
                                                                  const FamilyOptions&) {
  MambaConfig out;
  WEIR_ASSIGN_OR_RETURN(MambaSsmLayout layout, ReadMambaSsmLayout(config));
  const ConfigReader& ssm = layout.ssm_cfg;
  out.shape = std::move(layout.shape);
  const int64_t d_model = out.shape.d_model;
  WEIR_ASSIGN_OR_RETURN(out.d_inner, ReadExpanded(ssm, d_model));
  WEIR_ASSIGN_OR_RETURN(out.state_dim, ssm.Int("d_state", 1, kMaxScanStateDim, 16));
  WEIR_ASSIGN_OR_RETURN(out.conv_size, ssm.Int("d_conv", 1, kMaxShortConvWidth, 4));
  WEIR_ASSIGN_OR_RETURN(out.dt_rank, DtRank(ssm, "dt_rank", d_model));
  WEIR_ASSIGN_OR_RETURN(out.bias, ssm.Bool("bias", false));
  WEIR_ASSIGN_OR_RETURN(out.conv_bias, ssm.Bool("conv_bias", true));
  WEIR_RETURN_IF_ERROR(CheckSsmKeys(ssm));
  return std::make_unique<MambaFamily>(std::move(out));
}

}  // namespace weir
