// DecoderFamily: what config.json says about a decoder, and how its mixers are made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/layers/weight_loader.h"
#include "model/mixers/mixer.h"

namespace weir {

// Sizes and tensor names that every pre-norm decoder has: embedding, blocks of norm + mixer and, where d_ff
// is not 0, norm + MLP, final norm, head.
struct DecoderShape {
  int64_t d_model = 0;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t d_ff = 0;           // 0: blocks of norm + mixer alone
  int64_t context_limit = 0;  // 0: none
  float norm_eps = 1e-5f;
  bool tied = false;
  std::string layers_prefix = "model.layers.";
  std::string embedding_name;
  std::string final_norm_name;
  std::string head_name;
  std::string mixer_norm_name;  // behind the layer's prefix, like the next two
  std::string mlp_norm_name;
  std::string mlp_prefix;

  std::string LayerPrefix(int64_t layer) const { return layers_prefix + std::to_string(layer) + "."; }
};

struct FamilyOptions {
  std::optional<DType> kv_dtype;  // unset: f32 for f32 weights, else f16
};

// Immutable.
class DecoderFamily {
 public:
  virtual ~DecoderFamily() = default;
  virtual std::string_view mixer_name() const = 0;
  virtual const DecoderShape& shape() const = 0;
  virtual int prefill_granule() const = 0;
  // Flops of one layer's mixer that grow with the position, per position.
  virtual double flops_per_position() const = 0;
  virtual absl::StatusOr<std::unique_ptr<SequenceMixer>> LoadMixer(const WeightLoader& loader,
                                                                   const std::string& layer_prefix) const = 0;
};

}  // namespace weir
