// Mamba-2 (Dao & Gu 2024): projection, short convolution, a linear recurrence that each head and token decays
// by a scalar of its own, gated norm.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"

namespace weir {

// `Mamba2ForCausalLM` as Hugging Face lays it out. INVALID_ARGUMENT names the key that is out of range or
// asks for what this mixer does not do.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMamba2Family(const ConfigReader& config,
                                                                const FamilyOptions& options);

// A config.json of the authors' mamba_ssm whose ssm_cfg.layer is "Mamba2".
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaSsm2Family(const ConfigReader& config,
                                                                   const FamilyOptions& options);

}  // namespace weir
