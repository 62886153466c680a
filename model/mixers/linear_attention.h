// The linear attention mixer: φ = elu + 1 (Katharopoulos et al. 2020) in flash-linear-attention's
// `linear_attn` layout, and Performer, whose φ are positive random features (Choromanski et al. 2021).
#pragma once

#include <memory>

#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"
#include "model/mixers/mixer.h"

namespace weir {

// Reads the keys of a LinearAttentionForCausalLM config.json. Beyond that layout, and named as its sibling
// layers name them: `use_short_conv` with `conv_size` (a causal depthwise convolution and silu on q, k and v
// before φ) and `use_output_gate` (the normalised output is multiplied by silu(g_proj(x))).
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadLinearAttentionFamily(const ConfigReader& config,
                                                                         const FamilyOptions& options);

// Reads the keys of a PerformerForCausalLM config.json: those above and `num_features`, d' of one head. The
// layout is Weir's own: each layer holds its random features as `attn.features` [num_features, key_dim],
// shared by its heads.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadPerformerFamily(const ConfigReader& config,
                                                                   const FamilyOptions& options);

}  // namespace weir
