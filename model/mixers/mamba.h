// The Mamba mixer (Gu & Dao 2023): input projection, causal convolution, selective scan, gate, output
// projection; as MambaForCausalLM, FalconMambaForCausalLM and the authors' mamba_ssm have it.
#pragma once

#include <memory>

#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"

namespace weir {

// Reads the keys of a MambaForCausalLM config.json.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaFamily(const ConfigReader& config,
                                                               const FamilyOptions& options);

// The same, and `mixer_rms_eps`: dt, B and C are divided by their root mean square, without a weight.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadFalconMambaFamily(const ConfigReader& config,
                                                                     const FamilyOptions& options);

// A config.json of mamba_ssm whose ssm_cfg.layer is absent or "Mamba1".
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadMambaSsmFamily(const ConfigReader& config,
                                                                  const FamilyOptions& options);

}  // namespace weir
