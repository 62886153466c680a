// What the config.json of both Mambas say alike, in Hugging Face's layout and in that of the authors'
// mamba_ssm.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"

namespace weir {

inline constexpr int64_t kMaxMambaSize = 1 << 20;

// Hugging Face's: sizes, norms, names and the head; `tied` is what an absent tie_word_embeddings means.
absl::StatusOr<DecoderShape> ReadMambaShape(const ConfigReader& config, bool tied);

// d_model times "expand" (2 when absent), at least 1.
absl::StatusOr<int64_t> ReadExpanded(const ConfigReader& config, int64_t d_model);

struct MambaSsmLayout {
  DecoderShape shape;    // without an MLP
  ConfigReader ssm_cfg;  // the mixer's own keys; empty where the file has none
};

// LayerNorm, attention layers and MLPs are errors. vocab_size is that of the weights, rounded up to
// pad_vocab_size_multiple.
absl::StatusOr<MambaSsmLayout> ReadMambaSsmLayout(const ConfigReader& config);

// When the mixer has read its own: an error for a key that nobody knows, since it might make another mixer.
// What tells only how to train or how to compute the same is allowed.
absl::Status CheckSsmKeys(const ConfigReader& ssm_cfg);

}  // namespace weir
