// Model folders as people have them: element types mixed, vocabularies padded, no tokenizer, weights stored
// twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "model/weights/safetensors.h"
#include "nlohmann/json.hpp"
#include "runtime/state/state_arena.h"
#include "tests/support/model_harness.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

class Folders : public ::testing::Test {
 protected:
  Folders() : device_(CreateCpuDevice(1)) {}

  static std::vector<TensorSpec> ReadTensors(const std::string& folder) {
    const auto file = SafetensorsFile::Open(folder + "/model.safetensors");
    WEIR_CHECK(file.ok());
    std::vector<TensorSpec> tensors;
    for (const SafetensorsEntry& entry : file->tensors()) {
      const auto tensor = file->Read(entry);
      WEIR_CHECK(tensor.ok());
      tensors.push_back(F32Tensor(entry.name, entry.shape, tensor->ToF32()));
    }
    return tensors;
  }
  static void WriteTensors(const std::string& folder, const std::vector<TensorSpec>& tensors) {
    std::ofstream(folder + "/model.safetensors", std::ios::binary | std::ios::trunc)
        << SafetensorsBytes(tensors);
  }
  std::vector<std::vector<float>> Logits(const LoadedModel& model) {
    ModelHarness harness(model.decoder, *device_);
    ModelHarness::Sequence sequence = harness.NewSequence(64);
    return harness.Step({{&sequence, RandomTokens(20, 60, 3)}});
  }
  LoadedModel MustLoad(const std::string& folder, const LoadOptions& options = {}) {
    absl::StatusOr<LoadedModel> loaded = LoadModel(folder, *device_, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    WEIR_CHECK(loaded.ok());
    return *std::move(loaded);
  }

  std::unique_ptr<Device> device_;
};

std::vector<float> Floats(const TensorSpec& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST_F(Folders, ElementTypesMayMix) {
  for (const char* mixer : {"softmax", "linear_attention", "mamba", "falcon_mamba"}) {
    TinyModelOptions options;
    options.mixer = mixer;
    const TempDir mixed, plain;
    WriteTinyModel(mixed.path(), options);
    WriteTinyModel(plain.path(), options);
    // Neighbours differ, so that q, k and v, which become one matrix, have three types.
    std::vector<TensorSpec> stored = ReadTensors(mixed.path());
    std::vector<TensorSpec> rounded = stored;
    for (size_t i = 0; i < stored.size(); ++i) {
      const std::vector<float> values = Floats(stored[i]);
      std::vector<float> same = values;
      for (float& value : same)
        value = i % 3 == 0   ? value
                : i % 3 == 1 ? F16::FromFloat(value).ToFloat()
                             : BF16::FromFloat(value).ToFloat();
      rounded[i] = F32Tensor(stored[i].name, stored[i].shape, same);
      if (i % 3 == 1) stored[i] = HalfTensor<F16>(stored[i].name, stored[i].shape, values);
      if (i % 3 == 2) stored[i] = HalfTensor<BF16>(stored[i].name, stored[i].shape, values);
    }
    WriteTensors(mixed.path(), stored);
    WriteTensors(plain.path(), rounded);
    LoadOptions f32;
    f32.weight_dtype = DType::kF32;
    EXPECT_EQ(Logits(MustLoad(mixed.path(), f32)), Logits(MustLoad(plain.path()))) << mixer;
    // As served: products with bf16 matrices round their inputs.
    EXPECT_LT(MaxRelativeError(Logits(MustLoad(mixed.path())), Logits(MustLoad(plain.path()))), 0.05)
        << mixer;
  }
}

TEST_F(Folders, AModelMayHaveMoreIdsThanItsTokenizer) {
  const TempDir folder, narrow;
  WriteTinyModel(folder.path(), {});
  TinyModelOptions fewer;
  fewer.vocab_size = 60;
  WriteTinyModel(narrow.path(), fewer);
  std::filesystem::copy_file(narrow.File("tokenizer.json"), folder.File("tokenizer.json"),
                             std::filesystem::copy_options::overwrite_existing);
  const LoadedModel model = MustLoad(folder.path());
  EXPECT_EQ(model.decoder->vocab_size(), 97);
  EXPECT_EQ(model.text->size(), 60) << "ids above have no text and are never drawn";
}

TEST_F(Folders, ATokenizerMayComeFromAnotherFolder) {
  const TempDir folder, other;
  WriteTinyModel(folder.path(), {});
  WriteTinyModel(other.path(), {});
  const uint64_t own = MustLoad(folder.path()).weights_fingerprint;
  std::filesystem::remove(folder.File("tokenizer.json"));
  LoadOptions options;
  options.tokenizer_folder = other.path();
  const LoadedModel model = MustLoad(folder.path(), options);
  ASSERT_NE(model.tokenizer, nullptr);
  EXPECT_EQ(model.weights_fingerprint, own) << "the same weights and tokenizer, wherever they lie";
  options.tokenizer_folder = "/nonexistent/tokenizer";
  EXPECT_THAT(std::string(LoadModel(folder.path(), *device_, options).status().message()),
              HasSubstr("tokenizer folder '/nonexistent/tokenizer'"));
}

TEST_F(Folders, WithoutATokenizerTheRemedyIsNamed) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::filesystem::remove(folder.File("tokenizer.json"));
  const std::string message(LoadModel(folder.path(), *device_, {}).status().message());
  EXPECT_THAT(message, HasSubstr("--tokenizer FOLDER"));
  EXPECT_THAT(message, HasSubstr("--tokenizer none"));
}

TEST_F(Folders, TokenIdsOnly) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::filesystem::remove(folder.File("tokenizer.json"));
  LoadOptions options;
  options.ids_only = true;
  const LoadedModel model = MustLoad(folder.path(), options);
  EXPECT_EQ(model.tokenizer, nullptr);
  EXPECT_EQ(model.text->size(), 97);
  EXPECT_EQ(model.text->Piece(5, true), "");
  EXPECT_EQ(model.eos_ids, std::vector<int32_t>{0});
}

// By the family's own count, whatever the configuration says of lengths.
TEST_F(Folders, SES_17_BytesPerSessionDoNotDependOnTheContext) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::ifstream file(folder.File("config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  std::set<int64_t> bytes;
  for (const int64_t context : {1, 2048, 1'000'000}) {
    config["max_position_embeddings"] = context;
    folder.Write("config.json", config.dump());
    const LoadedModel model = MustLoad(folder.path());
    EXPECT_EQ(model.decoder->context_limit(), 0) << "a constant state has no limit";
    bytes.insert(StateArena::SlotBytes(model.decoder->States()));
  }
  EXPECT_EQ(bytes.size(), 1u);
}

TEST_F(Folders, KeysThatChangeNothingMayBeThere) {
  for (const char* mixer : {"softmax", "linear_attention", "mamba", "falcon_mamba"}) {
    TinyModelOptions options;
    options.mixer = mixer;
    const TempDir folder;
    WriteTinyModel(folder.path(), options);
    const auto logits = Logits(MustLoad(folder.path()));
    std::ifstream file(folder.File("config.json"));
    nlohmann::json config = nlohmann::json::parse(file);
    config.update({{"transformers_version", "4.53.0"},
                   {"_name_or_path", "/somewhere"},
                   {"torch_dtype", "float32"},
                   {"use_cache", false},
                   {"initializer_range", 0.02},
                   {"auto_map", {{"AutoConfig", "configuration.Config"}}},
                   {"quantization_config", nullptr}});
    folder.Write("config.json", config.dump());
    EXPECT_EQ(Logits(MustLoad(folder.path())), logits) << mixer;
  }
}

TEST_F(Folders, DerivedTensorsMayBeStored) {
  TinyModelOptions options;
  options.mixer = "softmax";
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  const auto logits = Logits(MustLoad(folder.path()));
  std::vector<TensorSpec> tensors = ReadTensors(folder.path());
  tensors.push_back(F32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", {2}, {1.0f, 0.1f}));
  // A tied head that is stored once more.
  for (const TensorSpec& tensor : std::vector<TensorSpec>(tensors))
    if (tensor.name == "model.embed_tokens.weight")
      tensors.push_back({"lm_head.weight", tensor.dtype, tensor.shape, tensor.bytes});
  WriteTensors(folder.path(), tensors);
  EXPECT_EQ(Logits(MustLoad(folder.path())), logits);
}

TEST_F(Folders, PickledWeightsAreNamedWithTheirConverter) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::filesystem::rename(folder.File("model.safetensors"), folder.File("pytorch_model.bin"));
  const std::string message(LoadModel(folder.path(), *device_, {}).status().message());
  EXPECT_THAT(message, HasSubstr("pytorch_model.bin"));
  EXPECT_THAT(message, HasSubstr("convert_bin.py"));
}

}  // namespace
}  // namespace weir::testing
