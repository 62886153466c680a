// Tiny random checkpoints as Hugging Face folders, one per decoder family, with awkward sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "model/loaded_model.h"
#include "runtime/tensor/dtype.h"

namespace weir::testing {

// Of the mixers "mamba", "falcon_mamba" and "mamba_ssm" (the authors' layout), which have no heads and no
// MLP.
struct TinyMambaOptions {
  int d_inner = 90;  // 3/2 · d_model
  int state_dim = 11;
  int dt_rank = 5;
  bool bias = false;  // of the projections in and out
  bool conv_bias = true;
};

struct TinyModelOptions {
  std::string mixer = "linear_attention";  // or "softmax", "performer", "mamba2", or see TinyMambaOptions
  DType dtype = DType::kF32;               // of the checkpoint: kF32, kBF16
  std::optional<DType> served;             // what LoadTinyModel makes of its matrices
  int vocab_size = 97;
  int d_model = 60;
  int num_layers = 2;
  int num_heads = 3;
  int num_kv_heads = 3;   // mamba2: groups
  int d_ff = 88;          // not mamba2
  int num_features = 21;  // performer
  int state_dim = 12;     // mamba2
  bool tied = true;
  bool conv_and_gate = true;  // linear attention and performer
  int conv_size = 4;
  bool biases = false;  // mamba2: of the projections; its convolution has one exactly where they do not
  TinyMambaOptions mamba;
  unsigned seed = 1;
};

// Writes config.json, model.safetensors, tokenizer.json (one printable character per id) and
// generation_config.json (end-of-sequence id 0) into `folder`.
void WriteTinyModel(const std::string& folder, const TinyModelOptions& options);

// The same, loaded; the folder is gone afterwards.
LoadedModel LoadTinyModel(const TinyModelOptions& options, Device& device);

}  // namespace weir::testing
