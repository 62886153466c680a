#include "model/decoder.h"

#include <algorithm>

#include "fmt/format.h"
#include "model/weights/output_head.h"
#include "runtime/base/status_macros.h"
#include "runtime/ops/embedding/embedding.h"
#include "runtime/ops/rms_norm/rms_norm.h"

namespace weir {
namespace {

// Old exporters saved this table, which the configuration determines.
bool IsDerived(const std::string& tensor) { return tensor.ends_with("rotary_emb.inv_freq"); }

absl::Status RefuseUnused(const WeightMap& weights) {
  std::string unknown;
  int count = 0;
  for (const std::string& name : weights.Unused()) {
    if (IsDerived(name)) continue;
    if (++count <= 5) unknown += (count > 1 ? ", " : "") + name;
  }
  if (count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "the folder holds {} tensors that this architecture does not use: {}{}; config.json does not describe "
      "these weights",
      count, unknown, count > 5 ? ", …" : ""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Load(const DecoderFamily& family,
                                                       const WeightLoader& loader,
                                                       std::vector<std::string>* warnings) {
  std::unique_ptr<Decoder> decoder(new Decoder);
  const DecoderShape& shape = decoder->shape_ = family.shape();
  decoder->prefill_granule_ = family.prefill_granule();
  decoder->flops_per_position_ = family.flops_per_position() * static_cast<double>(shape.num_layers);
  WEIR_RETURN_IF_ERROR(loader.Require(kGatherPackedRows, kGatherRows, kMatmul, kRmsNorm));
  WEIR_ASSIGN_OR_RETURN(decoder->embedding_,
                        loader.Matrix(shape.embedding_name, shape.vocab_size, shape.d_model));
  int num_states = 0;
  int num_paged = 0;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::string prefix = shape.LayerPrefix(layer);
    Block block;
    WEIR_ASSIGN_OR_RETURN(block.mixer_norm, loader.Vector(prefix + shape.mixer_norm_name, shape.d_model));
    WEIR_ASSIGN_OR_RETURN(block.mixer, family.LoadMixer(loader, prefix));
    if (shape.d_ff > 0) {
      WEIR_ASSIGN_OR_RETURN(block.mlp_norm, loader.Vector(prefix + shape.mlp_norm_name, shape.d_model));
      WEIR_ASSIGN_OR_RETURN(block.mlp,
                            GatedMlp::Load(loader, prefix + shape.mlp_prefix, shape.d_model, shape.d_ff));
    }
    block.first_state = num_states;
    block.num_states = static_cast<int>(block.mixer->States().size());
    num_states += block.num_states;
    if (block.mixer->Paged().num_layers > 0) block.paged_layer = num_paged++;
    decoder->blocks_.push_back(std::move(block));
  }
  WEIR_ASSIGN_OR_RETURN(decoder->final_norm_, loader.Vector(shape.final_norm_name, shape.d_model));
  WEIR_RETURN_IF_ERROR(decoder->LoadHead(loader, warnings));
  WEIR_RETURN_IF_ERROR(RefuseUnused(loader.weights()));
  return decoder;
}

absl::Status Decoder::LoadHead(const WeightLoader& loader, std::vector<std::string>* warnings) {
  WEIR_ASSIGN_OR_RETURN(const OutputHead head, ResolveOutputHead(loader.weights(), shape_.tied,
                                                                 shape_.embedding_name, shape_.head_name));
  if (!head.warning.empty()) warnings->push_back(head.warning);
  shape_.tied = head.tied;
  if (head.tied) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(head_, loader.Matrix(head.tensor_name, shape_.vocab_size, shape_.d_model));
  return absl::OkStatus();
}

std::vector<StateSpec> Decoder::States() const {
  std::vector<StateSpec> specs;
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    for (StateSpec spec : blocks_[layer].mixer->States()) {
      spec.name = fmt::format("layers.{}.{}", layer, spec.name);
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

PagedSpec Decoder::Paged() const {
  PagedSpec spec;
  for (const Block& block : blocks_) {
    if (block.paged_layer < 0) continue;
    const int layers = spec.num_layers + 1;
    spec = block.mixer->Paged();  // of one shape in all layers
    spec.num_layers = layers;
  }
  return spec;
}

TokenCost Decoder::token_cost() const {
  // Two flops per weight that is multiplied; the embedding is only looked up, the head is used for chosen
  // rows.
  int64_t weights = 0;
  for (const Block& block : blocks_)
    weights += block.mixer->parameter_count() + (block.mlp ? block.mlp->parameter_count() : 0);
  return {2.0 * static_cast<double>(weights), flops_per_position_};
}

int64_t Decoder::parameter_count() const {
  int64_t count = embedding_.n() * embedding_.k() + head_.n() * head_.k() + shape_.d_model;
  for (const Block& block : blocks_) {
    count += block.mixer->parameter_count() + shape_.d_model;
    if (block.mlp) count += block.mlp->parameter_count() + shape_.d_model;
  }
  return count;
}

int64_t Decoder::weight_bytes() const {
  int64_t bytes = embedding_.bytes() + head_.bytes() + final_norm_.bytes();
  for (const Block& block : blocks_)
    bytes += block.mixer->weight_bytes() + block.mixer_norm.bytes() + block.mlp_norm.bytes() +
             (block.mlp ? block.mlp->weight_bytes() : 0);
  return bytes;
}

int64_t Decoder::WorkspaceBytes(int max_tokens, int max_logits, int64_t max_positions,
                                int num_threads) const {
  const int64_t rows = Workspace::BytesFor(DType::kF32, max_tokens * shape_.d_model);
  int64_t layer = 0;
  for (const Block& block : blocks_)
    layer = std::max({layer, block.mixer->WorkspaceBytes(max_tokens, max_positions, num_threads),
                      block.mlp ? block.mlp->WorkspaceBytes(max_tokens) : 0});
  const int64_t head = Workspace::BytesFor(DType::kF32, max_logits * shape_.d_model);
  return 2 * rows + std::max(layer, head);
}

void Decoder::Forward(const StepInput& input, const StepState& state, TensorView logits, Workspace& workspace,
                      Stream& stream) const {
  const Workspace::Scope scope(workspace);
  const RaggedBatch& batch = input.batch;
  const TensorView x = workspace.F32(batch.num_tokens, shape_.d_model);  // the residual stream
  const TensorView normed = workspace.F32(batch.num_tokens, shape_.d_model);
  const auto norm = [&](const TensorView& in, const DeviceTensor& weight, const TensorView& out) {
    Launch(kRmsNorm, {.x = in, .weight = weight.view(), .gate = {}, .y = out, .eps = shape_.norm_eps},
           stream);
  };
  Launch(kGatherPackedRows, {.table = &embedding_, .index = input.token_ids, .y = x}, stream);
  for (const Block& block : blocks_) {
    SequenceMixer::State mixer_state;
    mixer_state.fixed = state.fixed.subspan(block.first_state, block.num_states);
    if (block.paged_layer >= 0) mixer_state.paged = &state.paged[block.paged_layer];
    norm(x, block.mixer_norm, normed);
    block.mixer->Forward(batch, normed, mixer_state, x, workspace, stream);
    if (!block.mlp) continue;
    norm(x, block.mlp_norm, normed);
    block.mlp->Forward(normed, x, workspace, stream);
  }
  if (logits.num_rows() == 0) return;
  const TensorView wanted = workspace.F32(logits.num_rows(), shape_.d_model);
  Launch(kGatherRows, {.table = x, .index = input.logit_rows, .y = wanted}, stream);
  norm(wanted, final_norm_, wanted);
  Launch(kMatmul, {.x = wanted, .weight = &head(), .y = logits, .bias = {}}, stream);
}

}  // namespace weir
