// What every config.json of the authors' mamba_ssm says, whichever mixer it names.
#pragma once

#include "absl/status/statusor.h"
#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"

namespace weir {

struct MambaSsmLayout {
  DecoderShape shape;    // without an MLP
  ConfigReader ssm_cfg;  // the mixer's own keys; empty where the file has none
};

// LayerNorm, attention layers and MLPs are errors. vocab_size is that of the weights, rounded up to
// pad_vocab_size_multiple.
absl::StatusOr<MambaSsmLayout> ReadMambaSsmLayout(const ConfigReader& config);

}  // namespace weir
