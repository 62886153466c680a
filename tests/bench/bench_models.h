// The models that are measured.
#pragma once

#include <optional>
#include <string>

#include "model/loaded_model.h"
#include "tests/support/tiny_model.h"

namespace weir::bench {

// Random bf16 weights, tied, at the shape of a public model. "softmax", "linear_attention" (with convolution
// and gate) and "performer" (so, with 64 features): a 135M Llama of 30 layers, hidden 576, 9 heads over 3 KV
// heads, ffn 1536, vocabulary 49152, 32768 positions. "mamba": mamba-130m, 24 layers, hidden 768, inner 1536,
// state 16, vocabulary 50280. "mamba2": mamba2-130m, the same with 24 heads of 64, state 128 and vocabulary
// 50288.
testing::TinyModelOptions SyntheticOptions(const std::string& mixer);
void WriteSynthetic(const std::string& folder, const std::string& mixer);
// `served`: what its matrices become (LoadOptions::weight_dtype).
LoadedModel Synthesize(const std::string& mixer, Device& device, std::optional<DType> served = std::nullopt);

// Rewrites max_position_embeddings in the folder's config.json.
void SetMaxPositions(const std::string& folder, int positions);

// `tales-linear` or `tales-softmax`. The latter's limit of positions is raised to 32768, to hold the long
// prompts of the benchmarks; the weights are the same.
LoadedModel LoadZooModel(const std::string& name, Device& device);
std::string ZooFolder(const std::string& name);

}  // namespace weir::bench
