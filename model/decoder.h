// Decoder: embedding, blocks of (norm, mixer) and, where the family has one, (norm, MLP), final norm and
// head: every model that Weir serves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/layers/decoder_family.h"
#include "model/layers/gated_mlp.h"
#include "model/layers/weight_loader.h"
#include "model/mixers/mixer.h"
#include "runtime/engine/language_model.h"

namespace weir {

// Immutable after Load.
class Decoder final : public LanguageModel {
 public:
  // Reads every tensor of the family; INVALID_ARGUMENT when the folder holds tensors that it does not
  // know. A warning about the head, if any, goes to *warnings.
  static absl::StatusOr<std::unique_ptr<Decoder>> Load(const DecoderFamily& family,
                                                       const WeightLoader& loader,
                                                       std::vector<std::string>* warnings);

  int32_t vocab_size() const override { return static_cast<int32_t>(shape_.vocab_size); }
  int64_t context_limit() const override { return shape_.context_limit; }
  std::vector<StateSpec> States() const override;
  PagedSpec Paged() const override;
  int prefill_granule() const override { return prefill_granule_; }
  TokenCost token_cost() const override;
  int64_t WorkspaceBytes(int max_tokens, int max_logits, int64_t max_positions,
                         int num_threads) const override;
  void Forward(const StepInput& input, const StepState& state, TensorView logits, Workspace& workspace,
               Stream& stream) const override;

  int64_t parameter_count() const;
  int64_t weight_bytes() const;
  DType weight_dtype() const { return embedding_.dtype(); }  // as served

 private:
  struct Block {
    DeviceTensor mixer_norm;  // f32 [d_model]
    std::unique_ptr<SequenceMixer> mixer;
    DeviceTensor mlp_norm;  // f32 [d_model]; empty without an MLP
    std::optional<GatedMlp> mlp;
    int first_state = 0;  // among States()
    int num_states = 0;
    int paged_layer = -1;  // among the KV pool's layers
  };

  Decoder() = default;
  absl::Status LoadHead(const WeightLoader& loader, std::vector<std::string>* warnings);
  const PackedMatrix& head() const { return shape_.tied ? embedding_ : head_; }

  DecoderShape shape_;
  int prefill_granule_ = 1;
  double flops_per_position_ = 0;
  PackedMatrix embedding_;  // [vocab_size, d_model]
  std::vector<Block> blocks_;
  DeviceTensor final_norm_;  // f32 [d_model]
  PackedMatrix head_;        // [vocab_size, d_model]; empty when tied
};

}  // namespace weir
