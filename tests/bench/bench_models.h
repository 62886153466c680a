// The models that are measured.
#pragma once

#include <string>

#include "model/loaded_model.h"

namespace weir::bench {

// Random bf16 weights at the shape of a 135M Llama: 30 layers, hidden 576, 9 heads over 3 KV heads, ffn 1536,
// vocabulary 49152, tied; 32768 positions. `mixer`: "softmax" or "linear_attention" (with convolution and
// gate).
LoadedModel Synthesize135M(const std::string& mixer, Device& device);

// `tales-linear` or `tales-softmax`. The latter's limit of positions is raised to 32768, to hold the long
// prompts of the benchmarks; the weights are the same.
LoadedModel LoadZooModel(const std::string& name, Device& device);
std::string ZooFolder(const std::string& name);

}  // namespace weir::bench
