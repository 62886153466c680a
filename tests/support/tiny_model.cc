#include "tests/support/tiny_model.h"

#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class Checkpoint {
 public:
  Checkpoint(DType dtype, unsigned seed) : dtype_(dtype), rng_(seed) {}

  void Add(const std::string& name, std::vector<int64_t> shape, float mean, float deviation) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(n);
    for (float& x : values) x = normal(rng_);
    tensors_.push_back(dtype_ == DType::kBF16 ? HalfTensor<BF16>(name, std::move(shape), values)
                                              : F32Tensor(name, std::move(shape), values));
  }
  void Matrix(const std::string& name, int64_t n, int64_t k) {
    Add(name, {n, k}, 0.0f, 1.0f / std::sqrt(static_cast<float>(k)));
  }
  void Norm(const std::string& name, int64_t n) { Add(name, {n}, 1.0f, 0.1f); }
  std::string Bytes() const { return SafetensorsBytes(tensors_); }

 private:
  const DType dtype_;
  std::mt19937 rng_;
  std::vector<TensorSpec> tensors_;
};

void AddSoftmaxLayer(Checkpoint* checkpoint, const std::string& prefix, const TinyModelOptions& o) {
  const int head_dim = o.d_model / o.num_heads;
  checkpoint->Norm(prefix + "input_layernorm.weight", o.d_model);
  checkpoint->Matrix(prefix + "self_attn.q_proj.weight", o.num_heads * head_dim, o.d_model);
  checkpoint->Matrix(prefix + "self_attn.k_proj.weight", o.num_kv_heads * head_dim, o.d_model);
  checkpoint->Matrix(prefix + "self_attn.v_proj.weight", o.num_kv_heads * head_dim, o.d_model);
  checkpoint->Matrix(prefix + "self_attn.o_proj.weight", o.d_model, o.num_heads * head_dim);
  checkpoint->Norm(prefix + "post_attention_layernorm.weight", o.d_model);
}

void AddLinearAttentionLayer(Checkpoint* checkpoint, const std::string& prefix, const TinyModelOptions& o) {
  const int head_dim = o.d_model / o.num_heads;
  const int kv_dim = o.num_kv_heads * head_dim;
  checkpoint->Norm(prefix + "attn_norm.weight", o.d_model);
  checkpoint->Matrix(prefix + "attn.q_proj.weight", o.d_model, o.d_model);
  checkpoint->Matrix(prefix + "attn.k_proj.weight", kv_dim, o.d_model);
  checkpoint->Matrix(prefix + "attn.v_proj.weight", kv_dim, o.d_model);
  checkpoint->Matrix(prefix + "attn.o_proj.weight", o.d_model, o.d_model);
  if (o.conv_and_gate) {
    checkpoint->Add(prefix + "attn.q_conv1d.weight", {o.d_model, 1, o.conv_size}, 0.0f, 0.5f);
    checkpoint->Add(prefix + "attn.k_conv1d.weight", {kv_dim, 1, o.conv_size}, 0.0f, 0.5f);
    checkpoint->Add(prefix + "attn.v_conv1d.weight", {kv_dim, 1, o.conv_size}, 0.0f, 0.5f);
    checkpoint->Matrix(prefix + "attn.g_proj.weight", o.d_model, o.d_model);
    checkpoint->Norm(prefix + "attn.g_norm_swish_gate.weight", head_dim);
  } else {
    checkpoint->Norm(prefix + "attn.norm.weight", head_dim);
  }
  if (o.mixer == "performer")
    checkpoint->Add(prefix + "attn.features", {o.num_features, head_dim}, 0.0f, 1.0f);
  checkpoint->Norm(prefix + "mlp_norm.weight", o.d_model);
}

void AddMamba2Layer(Checkpoint* checkpoint, const std::string& prefix, const TinyModelOptions& o) {
  const int d_inner = 2 * o.d_model;
  const int conv_dim = d_inner + 2 * o.num_kv_heads * o.state_dim;
  checkpoint->Norm(prefix + "norm.weight", o.d_model);
  checkpoint->Matrix(prefix + "mixer.in_proj.weight", d_inner + conv_dim + o.num_heads, o.d_model);
  checkpoint->Matrix(prefix + "mixer.out_proj.weight", o.d_model, d_inner);
  checkpoint->Add(prefix + "mixer.conv1d.weight", {conv_dim, 1, o.conv_size}, 0.0f, 0.5f);
  if (o.biases) {
    checkpoint->Add(prefix + "mixer.in_proj.bias", {d_inner + conv_dim + o.num_heads}, 0.0f, 0.2f);
    checkpoint->Add(prefix + "mixer.out_proj.bias", {o.d_model}, 0.0f, 0.2f);
  } else {
    checkpoint->Add(prefix + "mixer.conv1d.bias", {conv_dim}, 0.0f, 0.2f);
  }
  checkpoint->Add(prefix + "mixer.dt_bias", {o.num_heads}, -2.0f, 1.0f);
  checkpoint->Add(prefix + "mixer.A_log", {o.num_heads}, 0.5f, 1.0f);
  checkpoint->Norm(prefix + "mixer.D", o.num_heads);
  checkpoint->Norm(prefix + "mixer.norm.weight", d_inner);
}

bool IsMamba(const TinyModelOptions& o) {
  return o.mixer == "mamba" || o.mixer == "falcon_mamba" || o.mixer == "mamba_ssm";
}

void AddMambaLayer(Checkpoint* checkpoint, const std::string& prefix, const TinyModelOptions& o) {
  const TinyMambaOptions& m = o.mamba;
  const std::string mixer = prefix + "mixer.";
  checkpoint->Norm(prefix + "norm.weight", o.d_model);
  checkpoint->Matrix(mixer + "in_proj.weight", 2 * m.d_inner, o.d_model);
  checkpoint->Add(mixer + "conv1d.weight", {m.d_inner, 1, o.conv_size}, 0.0f, 0.5f);
  if (m.conv_bias) checkpoint->Add(mixer + "conv1d.bias", {m.d_inner}, 0.0f, 0.2f);
  checkpoint->Matrix(mixer + "x_proj.weight", m.dt_rank + 2 * m.state_dim, m.d_inner);
  checkpoint->Matrix(mixer + "dt_proj.weight", m.d_inner, m.dt_rank);
  checkpoint->Add(mixer + "dt_proj.bias", {m.d_inner}, -2.0f, 1.5f);  // steps of about 0.03 to 0.5
  checkpoint->Add(mixer + "A_log", {m.d_inner, m.state_dim}, 1.0f, 1.0f);
  checkpoint->Norm(mixer + "D", m.d_inner);
  checkpoint->Matrix(mixer + "out_proj.weight", o.d_model, m.d_inner);
  if (!m.bias) return;
  checkpoint->Add(mixer + "in_proj.bias", {2 * m.d_inner}, 0.0f, 0.2f);
  checkpoint->Add(mixer + "out_proj.bias", {o.d_model}, 0.0f, 0.2f);
}

std::string MambaEmbeddingName(const TinyModelOptions& o) {
  return o.mixer == "mamba_ssm" ? "backbone.embedding.weight" : "backbone.embeddings.weight";
}

void AddMamba(Checkpoint* checkpoint, const TinyModelOptions& o) {
  checkpoint->Matrix(MambaEmbeddingName(o), o.vocab_size, o.d_model);
  for (int layer = 0; layer < o.num_layers; ++layer) {
    const std::string prefix = "backbone.layers." + std::to_string(layer) + ".";
    o.mixer == "mamba2" ? AddMamba2Layer(checkpoint, prefix, o) : AddMambaLayer(checkpoint, prefix, o);
  }
  checkpoint->Norm("backbone.norm_f.weight", o.d_model);
  if (!o.tied) checkpoint->Matrix("lm_head.weight", o.vocab_size, o.d_model);
}

json MambaConfig(const TinyModelOptions& o) {
  const TinyMambaOptions& m = o.mamba;
  if (o.mixer == "mamba_ssm") {
    // The vocabulary is one less and padded up again.
    return {{"d_model", o.d_model},
            {"n_layer", o.num_layers},
            {"vocab_size", o.vocab_size - 1},
            {"pad_vocab_size_multiple", o.vocab_size},
            {"ssm_cfg",
             {{"layer", "Mamba1"},
              {"d_state", m.state_dim},
              {"d_conv", o.conv_size},
              {"expand", static_cast<double>(m.d_inner) / o.d_model},
              {"dt_rank", m.dt_rank},
              {"conv_bias", m.conv_bias},
              {"bias", m.bias}}},
            {"rms_norm", true},
            {"residual_in_fp32", true},
            {"fused_add_norm", true},
            {"tie_embeddings", o.tied}};
  }
  json config = {{"architectures", {o.mixer == "mamba" ? "MambaForCausalLM" : "FalconMambaForCausalLM"}},
                 {"vocab_size", o.vocab_size},
                 {"hidden_size", o.d_model},
                 {"intermediate_size", m.d_inner},
                 {"num_hidden_layers", o.num_layers},
                 {"state_size", m.state_dim},
                 {"conv_kernel", o.conv_size},
                 {"time_step_rank", m.dt_rank},
                 {"use_bias", m.bias},
                 {"use_conv_bias", m.conv_bias},
                 {"hidden_act", "silu"},
                 {"layer_norm_epsilon", 1e-5},
                 {"residual_in_fp32", true},
                 {"tie_word_embeddings", o.tied},
                 {"bos_token_id", 1},
                 {"eos_token_id", 0}};
  if (o.mixer == "falcon_mamba") config["mixer_rms_eps"] = 1e-6;
  return config;
}

json Config(const TinyModelOptions& o) {
  if (IsMamba(o)) return MambaConfig(o);
  json config = {
      {"vocab_size", o.vocab_size},    {"hidden_size", o.d_model}, {"num_hidden_layers", o.num_layers},
      {"tie_word_embeddings", o.tied}, {"bos_token_id", 1},        {"eos_token_id", 0}};
  if (o.mixer != "mamba2") config["intermediate_size"] = o.d_ff;
  if (o.mixer == "mamba2") {
    config.update({{"architectures", {"Mamba2ForCausalLM"}},
                   {"num_heads", o.num_heads},
                   {"head_dim", 2 * o.d_model / o.num_heads},
                   {"n_groups", o.num_kv_heads},
                   {"state_size", o.state_dim},
                   {"conv_kernel", o.conv_size},
                   {"use_bias", o.biases},
                   {"use_conv_bias", !o.biases}});
  } else if (o.mixer == "softmax") {
    config.update({{"architectures", {"LlamaForCausalLM"}},
                   {"num_attention_heads", o.num_heads},
                   {"num_key_value_heads", o.num_kv_heads},
                   {"max_position_embeddings", 16384},
                   {"rms_norm_eps", 1e-5}});
  } else {
    config.update({{"architectures", {"LinearAttentionForCausalLM"}},
                   {"num_heads", o.num_heads},
                   {"num_kv_heads", o.num_kv_heads},
                   {"feature_map", "elu"},
                   {"norm_feature_map", true},
                   {"norm_eps", 1e-5},
                   {"use_short_conv", o.conv_and_gate},
                   {"conv_size", o.conv_size},
                   {"use_output_gate", o.conv_and_gate}});
    if (o.mixer == "performer")
      config.update({{"architectures", {"PerformerForCausalLM"}},
                     {"feature_map", "favor+"},
                     {"num_features", o.num_features}});
  }
  return config;
}

// Byte-level BPE without merges: id 0 ends a sequence, ids from 1 on are "!", "\"", … in the order of ASCII.
json TokenizerJson(int vocab_size) {
  json vocab = {{"<|end|>", 0}};
  for (int id = 1; id < std::min(vocab_size, 95); ++id)
    vocab[std::string(1, static_cast<char>('!' + id - 1))] = id;
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 0},
             {"content", "<|end|>"},
             {"special", true},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  WEIR_CHECK(file.good());
}

void AddAttentionModel(Checkpoint* checkpoint, const TinyModelOptions& o) {
  const bool softmax = o.mixer == "softmax";
  checkpoint->Matrix(softmax ? "model.embed_tokens.weight" : "model.embeddings.weight", o.vocab_size,
                     o.d_model);
  for (int layer = 0; layer < o.num_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (softmax)
      AddSoftmaxLayer(checkpoint, prefix, o);
    else
      AddLinearAttentionLayer(checkpoint, prefix, o);
    checkpoint->Matrix(prefix + "mlp.gate_proj.weight", o.d_ff, o.d_model);
    checkpoint->Matrix(prefix + "mlp.up_proj.weight", o.d_ff, o.d_model);
    checkpoint->Matrix(prefix + "mlp.down_proj.weight", o.d_model, o.d_ff);
  }
  checkpoint->Norm("model.norm.weight", o.d_model);
  if (!o.tied) checkpoint->Matrix("lm_head.weight", o.vocab_size, o.d_model);
}

}  // namespace

void WriteTinyModel(const std::string& folder, const TinyModelOptions& o) {
  Checkpoint checkpoint(o.dtype, o.seed);
  if (IsMamba(o) || o.mixer == "mamba2")
    AddMamba(&checkpoint, o);
  else
    AddAttentionModel(&checkpoint, o);
  WriteFile(folder + "/config.json", Config(o).dump());
  WriteFile(folder + "/model.safetensors", checkpoint.Bytes());
  WriteFile(folder + "/tokenizer.json", TokenizerJson(o.vocab_size).dump());
}

LoadedModel LoadTinyModel(const TinyModelOptions& options, Device& device) {
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  LoadOptions load;
  load.weight_dtype = options.served;
  absl::StatusOr<LoadedModel> loaded = LoadModel(folder.path(), device, load);
  if (!loaded.ok()) std::fprintf(stderr, "%s\n", std::string(loaded.status().message()).c_str());
  WEIR_CHECK(loaded.ok());
  return *std::move(loaded);
}

}  // namespace weir::testing
