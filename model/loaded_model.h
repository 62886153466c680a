// LoadModel: from a Hugging Face folder to something that can be served.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/generation_config.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/engine/engine.h"

namespace weir {

struct LoadOptions {
  // Storage of the paged cache: unset means 32 bits for f32 weights, 16 for others.
  std::optional<DType> kv_dtype;
  // What matrices become (kF32, kBF16 or kI8: a scale for each row); unset: what the files have, f16 as f32.
  // Products of f32 matrices are f32 throughout, of others bf16 with f32 sums.
  std::optional<DType> weight_dtype;
  // Folder with the tokenizer.json to use; empty: the model's own folder.
  std::string tokenizer_folder;
  // No tokenizer at all: prompts and answers are token ids, and generated ids add no text.
  bool ids_only = false;
};

struct LoadedModel {
  std::string name;          // the folder's last component unless the caller names it otherwise
  std::string architecture;  // as config.json says, e.g. "LlamaForCausalLM"
  std::string mixer;         // "softmax", "linear_attention", …
  std::shared_ptr<const LanguageModel> decoder;
  std::shared_ptr<const Tokenizer> tokenizer;  // null: token ids only
  std::shared_ptr<const TokenText> text;       // the tokenizer as the engine sees it; never null
  GenerationDefaults defaults;
  int64_t parameter_count = 0;
  int64_t weight_bytes = 0;
  DType weight_dtype = DType::kF32;
  uint64_t weights_fingerprint = 0;  // as served, and of what config.json says of the model
  uint64_t tokenizer_fingerprint = 0;
  std::vector<int32_t> eos_ids;       // sorted
  std::vector<std::string> warnings;  // to be logged once
  std::vector<std::string> matrices;  // tensors that products are made with, by their names in the files
  std::string unused_head;  // an output matrix in the files that the embedding stands in for; or empty
};

// What the engine needs of it.
inline EngineModel EngineModelOf(const LoadedModel& model, const RunnerLimits& limits) {
  EngineModel out;
  out.name = model.name;
  out.model = model.decoder;
  out.text = model.text;
  out.eos_ids = model.eos_ids;
  out.mixer = model.mixer;
  out.weights_fingerprint = model.weights_fingerprint;
  out.tokenizer_fingerprint = model.tokenizer_fingerprint;
  out.limits = limits;
  return out;
}

// Reads config.json, *.safetensors, tokenizer.json and generation_config.json of `folder`.
absl::StatusOr<LoadedModel> LoadModel(const std::string& folder, Device& device, const LoadOptions& options);

}  // namespace weir
