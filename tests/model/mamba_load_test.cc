// Mamba's folders, Hugging Face's and the authors': what is read, and what is refused by which name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "model/weights/safetensors.h"
#include "nlohmann/json.hpp"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/state/state_arena.h"
#include "tests/support/model_harness.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TinyModelOptions Options(const std::string& mixer) {
  TinyModelOptions options;
  options.mixer = mixer;
  return options;
}

class MambaLoad : public ::testing::Test {
 protected:
  MambaLoad() : device_(CreateCpuDevice(1)) {}

  // A tiny model's folder whose config.json and tensors can be changed before it is loaded.
  struct Folder {
    explicit Folder(const TinyModelOptions& options) {
      WriteTinyModel(dir.path(), options);
      std::ifstream file(dir.File("config.json"));
      config = json::parse(file);
      const auto weights = SafetensorsFile::Open(dir.File("model.safetensors"));
      WEIR_CHECK(weights.ok());
      for (const SafetensorsEntry& entry : weights->tensors())
        tensors.push_back(F32Tensor(entry.name, entry.shape, weights->Read(entry)->ToF32()));
    }
    TensorSpec& Tensor(const std::string& name) {
      for (TensorSpec& tensor : tensors)
        if (tensor.name == name) return tensor;
      WEIR_CHECK(false);
      return tensors[0];
    }
    TempDir dir;
    json config;
    std::vector<TensorSpec> tensors;
  };

  absl::StatusOr<LoadedModel> Load(const Folder& folder) {
    folder.dir.Write("config.json", folder.config.dump());
    folder.dir.Write("model.safetensors", SafetensorsBytes(folder.tensors));
    return LoadModel(folder.dir.path(), *device_, {});
  }
  std::vector<std::vector<float>> Logits(const absl::StatusOr<LoadedModel>& model) {
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    ModelHarness harness(model->decoder, *device_);
    ModelHarness::Sequence sequence = harness.NewSequence();
    return harness.Step({{&sequence, RandomTokens(20, 90, 3)}});
  }
  void ExpectRefused(const Folder& folder, const std::string& name) {
    const absl::Status status = Load(folder).status();
    EXPECT_FALSE(status.ok()) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  template <class Edit>
  void ExpectRefused(const std::string& mixer, const std::string& name, Edit edit) {
    Folder folder(Options(mixer));
    edit(folder.config);
    ExpectRefused(folder, name);
  }

  std::unique_ptr<Device> device_;
};

void Poison(TensorSpec* tensor, float value) {
  std::memcpy(tensor->bytes.data() + tensor->bytes.size() - sizeof value, &value, sizeof value);
}

TEST_F(MambaLoad, SES_17_ReportsWhatWasLoadedAndBytesThatNoContextChanges) {
  for (const char* mixer : {"mamba", "falcon_mamba", "mamba_ssm"}) {
    Folder folder(Options(mixer));
    for (const int64_t context : {1, 2048, 1'000'000}) {
      folder.config["max_position_embeddings"] = context;
      const absl::StatusOr<LoadedModel> model = Load(folder);
      ASSERT_TRUE(model.ok()) << model.status();
      EXPECT_EQ(model->mixer, "mamba");
      EXPECT_EQ(model->decoder->context_limit(), 0);
      EXPECT_EQ(model->decoder->Paged().num_layers, 0);
      int64_t floats = 0;
      for (const StateSpec& spec : model->decoder->States()) floats += spec.num_elements();
      // layers · d_inner · (d_state + d_conv - 1)
      EXPECT_EQ(floats, 2 * 90 * (11 + 4 - 1));
    }
  }
}

TEST_F(MambaLoad, CountsItsParameters) {
  for (const bool bias : {false, true}) {
    TinyModelOptions options = Options("mamba");
    options.mamba.bias = bias;
    const Folder folder(options);
    int64_t stored = 0;
    for (const TensorSpec& tensor : folder.tensors)
      stored += static_cast<int64_t>(tensor.bytes.size() / sizeof(float));
    EXPECT_EQ(Load(folder)->parameter_count, stored);
  }
}

TEST_F(MambaLoad, KeysMayFollowFromOthers) {
  Folder folder(Options("mamba"));
  const auto want = Logits(Load(folder));
  folder.config.erase("intermediate_size");
  folder.config["expand"] = 1.5;
  EXPECT_EQ(Logits(Load(folder)), want);
  for (const bool f32 : {true, false}) {
    folder.config["residual_in_fp32"] = f32;
    EXPECT_EQ(Logits(Load(folder)), want) << "the residual stream is f32 in any case";
  }
  folder.config.erase("layer_norm_epsilon");
  folder.config.erase("conv_kernel");
  folder.config.erase("use_bias");
  folder.config.erase("use_conv_bias");
  folder.config.erase("hidden_act");
  EXPECT_EQ(Logits(Load(folder)), want) << "defaults of the layout";
  folder.config["layer_norm_epsilon"] = 0.1;
  EXPECT_NE(Logits(Load(folder)), want);
}

TEST_F(MambaLoad, TheRankOfDtMayBeAuto) {
  TinyModelOptions options = Options("mamba");
  options.mamba.dt_rank = 4;  // 60 / 16, rounded up
  Folder folder(options);
  const auto want = Logits(Load(folder));
  folder.config["time_step_rank"] = "auto";
  EXPECT_EQ(Logits(Load(folder)), want);
  folder.config.erase("time_step_rank");
  EXPECT_EQ(Logits(Load(folder)), want);
}

TEST_F(MambaLoad, FalconsNormsHaveTheirEpsilon) {
  Folder folder(Options("falcon_mamba"));
  const auto want = Logits(Load(folder));
  folder.config.erase("mixer_rms_eps");
  EXPECT_EQ(Logits(Load(folder)), want) << "1e-6 is the default";
  folder.config["mixer_rms_eps"] = 0.5;
  EXPECT_NE(Logits(Load(folder)), want);
  folder.config["architectures"] = {"MambaForCausalLM"};
  EXPECT_NE(Logits(Load(folder)), want) << "without the norms it is another model";
}

TEST_F(MambaLoad, UnsupportedValuesAreNamed) {
  const std::pair<const char*, json> cases[] = {
      {"hidden_act", "gelu"},
      {"conv_kernel", kMaxShortConvWidth + 1},
      {"conv_kernel", 0},
      {"state_size", 0},
      {"state_size", 513},
      {"time_step_rank", "automatic"},
      {"time_step_rank", 0},
      {"time_step_rank", 1.5},
      {"layer_norm_epsilon", -1},
      {"intermediate_size", 0},
      {"expand", 0},
      {"use_bias", "no"},
      {"hidden_size", "60"},
      {"num_hidden_layers", 0},
      {"vocab_size", 1},
      {"tie_word_embeddings", 1},
  };
  for (const auto& [key, value] : cases)
    ExpectRefused("mamba", key, [&](json& config) { config[key] = value; });
  ExpectRefused("falcon_mamba", "mixer_rms_eps", [](json& config) { config["mixer_rms_eps"] = -0.1; });
  // A least step that is infinite in f32 makes every state NaN.
  ExpectRefused("mamba2", "time_step_limit", [](json& config) { config["time_step_limit"] = {1e39, 1e40}; });
}

TEST_F(MambaLoad, LOD_09_TyingIsTheDefault) {
  for (const char* mixer : {"mamba", "falcon_mamba"}) {
    Folder folder(Options(mixer));
    const auto tied = Logits(Load(folder));
    folder.config.erase("tie_word_embeddings");
    EXPECT_EQ(Logits(Load(folder)), tied);
    folder.config["tie_word_embeddings"] = false;
    ExpectRefused(folder, "lm_head.weight");

    TensorSpec head = folder.Tensor("backbone.embeddings.weight");
    head.name = "lm_head.weight";
    Poison(&head, 7.0f);
    folder.tensors.push_back(head);
    EXPECT_NE(Logits(Load(folder)), tied);
    folder.config["tie_word_embeddings"] = true;
    const absl::StatusOr<LoadedModel> model = Load(folder);
    EXPECT_EQ(Logits(model), tied);
    ASSERT_EQ(model->warnings.size(), 1u);
    EXPECT_THAT(model->warnings[0], HasSubstr("lm_head.weight"));
  }
}

// Each tensor in turn: left out, of another shape, with a NaN in its last place.
TEST_F(MambaLoad, FaultsOfATensorAreNamed) {
  TinyModelOptions options = Options("mamba");
  options.mamba.bias = true;
  options.tied = false;
  options.num_layers = 1;
  const Folder good(options);
  ASSERT_TRUE(Load(good).ok());
  ASSERT_EQ(good.tensors.size(), 3u + 12u);
  for (size_t i = 0; i < good.tensors.size(); ++i) {
    const std::string& name = good.tensors[i].name;
    Folder missing(options), larger(options), bad(options);
    missing.tensors.erase(missing.tensors.begin() + static_cast<int64_t>(i));
    ExpectRefused(missing, name);
    TensorSpec& tensor = larger.tensors[i];
    const size_t row = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
    tensor.bytes.append(row, '\0');
    ++tensor.shape[0];
    ExpectRefused(larger, name);
    Poison(&bad.tensors[i], std::numeric_limits<float>::quiet_NaN());
    ExpectRefused(bad, name);
  }
}

TEST_F(MambaLoad, ARateThatIsInfiniteIsNamed) {
  Folder folder(Options("mamba"));
  Poison(&folder.Tensor("backbone.layers.1.mixer.A_log"), 100.0f);
  ExpectRefused(folder, "backbone.layers.1.mixer.A_log");
}

TEST_F(MambaLoad, TensorsThatConfigJsonDoesNotDescribeAreRefused) {
  TinyModelOptions options = Options("mamba");
  options.mamba.bias = true;
  Folder folder(options);
  folder.config["use_bias"] = false;
  ExpectRefused(folder, "in_proj.bias");
  folder.config["use_bias"] = true;
  folder.config["use_conv_bias"] = false;
  ExpectRefused(folder, "conv1d.bias");
}

// The authors' layout differs in names and in what it leaves to defaults.
TEST_F(MambaLoad, TheAuthorsLayoutIsTheSameModel) {
  for (const bool tied : {true, false}) {
    TinyModelOptions options = Options("mamba");
    options.tied = tied;
    options.mamba.bias = true;
    TinyModelOptions authors = options;
    authors.mixer = "mamba_ssm";
    Folder folder(authors);
    const auto want = Logits(Load(Folder(options)));
    EXPECT_EQ(Logits(Load(folder)), want);
    folder.config["ssm_cfg"].erase("layer");
    EXPECT_EQ(Logits(Load(folder)), want) << "Mamba1 is the default";
    folder.config["residual_in_fp32"] = false;
    folder.config["fused_add_norm"] = false;
    folder.config["d_intermediate"] = 0;
    folder.config["attn_layer_idx"] = json::array();
    folder.config["attn_cfg"] = json::object();
    folder.config["ssm_cfg"]["dt_min"] = 0.001;
    folder.config["ssm_cfg"]["use_fast_path"] = false;
    EXPECT_EQ(Logits(Load(folder)), want);
  }
}

TEST_F(MambaLoad, TheAuthorsDefaultsNeedNoKeys) {
  TinyModelOptions options = Options("mamba_ssm");
  options.vocab_size = 96;
  options.mamba = {.d_inner = 120, .state_dim = 16, .dt_rank = 4};
  Folder folder(options);
  const auto want = Logits(Load(folder));
  for (const json& none : {json::object(), json(nullptr)}) {
    folder.config = {{"d_model", 60}, {"n_layer", 2}, {"vocab_size", 90}, {"ssm_cfg", none}};
    EXPECT_EQ(Logits(Load(folder)), want) << "90 is padded to a multiple of 8";
  }
  folder.config = {{"d_model", 60}, {"n_layer", 2}, {"vocab_size", 90}};
  EXPECT_EQ(Logits(Load(folder)), want);
  folder.config["pad_vocab_size_multiple"] = 1;
  ExpectRefused(folder, "backbone.embedding.weight");
}

// As a converted pytorch_model.bin may have it: the tied head once more.
TEST_F(MambaLoad, TheAuthorsTiedHeadMayBeStoredTwice) {
  Folder folder(Options("mamba_ssm"));
  const auto want = Logits(Load(folder));
  TensorSpec head = folder.Tensor("backbone.embedding.weight");
  head.name = "lm_head.weight";
  folder.tensors.push_back(head);
  const absl::StatusOr<LoadedModel> model = Load(folder);
  EXPECT_EQ(Logits(model), want);
  EXPECT_TRUE(model->warnings.empty());
}

TEST_F(MambaLoad, UnsupportedValuesOfTheAuthorsLayoutAreNamed) {
  ExpectRefused("mamba_ssm", "rms_norm", [](json& config) { config["rms_norm"] = false; });
  ExpectRefused("mamba_ssm", "attn_layer_idx", [](json& config) { config["attn_layer_idx"] = {1}; });
  ExpectRefused("mamba_ssm", "d_intermediate", [](json& config) { config["d_intermediate"] = 32; });
  ExpectRefused("mamba_ssm", "ssm_cfg.d_state", [](json& config) { config["ssm_cfg"]["d_state"] = 0; });
  ExpectRefused("mamba_ssm", "ssm_cfg.dt_rank", [](json& config) { config["ssm_cfg"]["dt_rank"] = "half"; });
  ExpectRefused("mamba_ssm", "ssm_cfg.d_stat'", [](json& config) { config["ssm_cfg"]["d_stat"] = 8; });
  ExpectRefused("mamba_ssm", "mamba_ssm Mamba9", [](json& config) { config["ssm_cfg"]["layer"] = "Mamba9"; });
  ExpectRefused("mamba_ssm", "MambaForCausalLM", [](json& config) { config["ssm_cfg"]["layer"] = "Mamba9"; });
}

}  // namespace
}  // namespace weir::testing
