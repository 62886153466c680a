// The parts of a model folder's config.json that do not belong to one architecture. Each mixer and layer
// reads its own keys from the same ConfigReader.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/config/json_reader.h"

namespace weir {

// config.json of `folder`.
absl::StatusOr<ConfigReader> LoadModelConfig(const std::string& folder);

// The first of "architectures" (for instance "Mamba2ForCausalLM"), or "model_type" where that list is absent
// or empty; of a layout that has neither, the name that the table of families gives it ("mamba_ssm Mamba1").
absl::StatusOr<std::string> Architecture(const ConfigReader& config);

// INVALID_ARGUMENT where "quantization_config" says anything but int8 matrices with one scale for each output
// (compressed-tensors, "int-quantized"), which is all that is served of quantized folders.
absl::Status CheckQuantization(const ConfigReader& config);

// "tie_word_embeddings"; families differ in what an absent key means. See ResolveOutputHead() in
// model/weights.
absl::StatusOr<bool> TieWordEmbeddings(const ConfigReader& config, bool family_default);

}  // namespace weir
