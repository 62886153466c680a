// The softmax mixer: rotary grouped-query attention over a paged KV cache, as LlamaForCausalLM has it.
#pragma once

#include <memory>

#include "model/config/json_reader.h"
#include "model/layers/decoder_family.h"
#include "model/mixers/mixer.h"

namespace weir {

// Reads the keys of a LlamaForCausalLM config.json.
absl::StatusOr<std::unique_ptr<DecoderFamily>> ReadLlamaFamily(const ConfigReader& config,
                                                               const FamilyOptions& options);

}  // namespace weir
