// int8 matrices: made while a model loads, and saved by QuantizeFolder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/quantize/quantize_folder.h"
#include "model/weights/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/support/model_harness.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kMixers[] = {"linear_attention", "performer", "mamba2", "softmax", "mamba",
                                   "falcon_mamba",     "mamba_ssm"};

class Int8 : public ::testing::Test {
 protected:
  Int8() : device_(CreateCpuDevice(1)) {}

  absl::StatusOr<LoadedModel> Load(const std::string& folder, std::optional<DType> dtype = std::nullopt) {
    LoadOptions options;
    options.weight_dtype = dtype;
    return LoadModel(folder, *device_, options);
  }
  LoadedModel MustLoad(const std::string& folder, std::optional<DType> dtype = std::nullopt) {
    absl::StatusOr<LoadedModel> loaded = Load(folder, dtype);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    WEIR_CHECK(loaded.ok());
    return *std::move(loaded);
  }
  std::vector<std::vector<float>> Logits(const LoadedModel& model) {
    ModelHarness harness(model.decoder, *device_);
    ModelHarness::Sequence sequence = harness.NewSequence(64);
    return harness.Step({{&sequence, RandomTokens(20, 60, 3)}});
  }
  std::string Refusal(const std::string& folder) { return std::string(Load(folder).status().message()); }

  // A tiny model with int8 matrices in `folder`/int8; `edit` changes its tensors.
  template <class Edit>
  std::string Saved(const TempDir& folder, Edit&& edit) {
    WriteTinyModel(folder.path(), {});
    const std::string to = folder.File("int8");
    WEIR_CHECK(QuantizeFolder(folder.path(), to).ok());
    std::vector<TensorSpec> tensors;
    {
      const auto file = SafetensorsFile::Open(to + "/model.safetensors");
      WEIR_CHECK(file.ok());
      for (const SafetensorsEntry& entry : file->tensors()) {
        std::string bytes(entry.num_bytes, '\0');
        WEIR_CHECK(file->ReadBytes(entry, 0, std::as_writable_bytes(std::span(bytes))).ok());
        tensors.push_back({entry.name, entry.dtype_name, entry.shape, std::move(bytes)});
      }
    }
    edit(&tensors);
    std::ofstream(to + "/model.safetensors", std::ios::binary | std::ios::trunc) << SafetensorsBytes(tensors);
    return to;
  }

  std::unique_ptr<Device> device_;
};

TensorSpec& Named(std::vector<TensorSpec>* tensors, std::string_view name) {
  for (TensorSpec& tensor : *tensors)
    if (tensor.name == name) return tensor;
  WEIR_CHECK(false);
  std::abort();
}

TEST_F(Int8, TheSavedFormIsWhatLoadingMakes) {
  for (const char* mixer : kMixers) {
    for (const bool tied : {true, false}) {
      SCOPED_TRACE(std::string(mixer) + (tied ? " tied" : " untied"));
      TinyModelOptions options;
      options.mixer = mixer;
      options.tied = tied;
      options.dtype = tied ? DType::kBF16 : DType::kF32;
      const TempDir folder;
      WriteTinyModel(folder.path(), options);
      const absl::StatusOr<QuantizedFolder> saved = QuantizeFolder(folder.path(), folder.File("int8"));
      ASSERT_TRUE(saved.ok()) << saved.status();
      EXPECT_LT(saved->bytes_after, saved->bytes_before);
      const LoadedModel plain = MustLoad(folder.path()), loaded = MustLoad(folder.path(), DType::kI8),
                        from_saved = MustLoad(folder.File("int8"));
      EXPECT_EQ(loaded.weight_dtype, DType::kI8);
      EXPECT_EQ(from_saved.weight_dtype, DType::kI8);
      EXPECT_EQ(from_saved.weight_bytes, loaded.weight_bytes);
      EXPECT_LT(loaded.weight_bytes, plain.weight_bytes);
      EXPECT_EQ(from_saved.parameter_count, plain.parameter_count);
      EXPECT_EQ(from_saved.eos_ids, plain.eos_ids);
      EXPECT_NE(from_saved.tokenizer, nullptr);
      EXPECT_EQ(Logits(from_saved), Logits(loaded));
      EXPECT_LT(MaxRelativeError(Logits(loaded), Logits(plain)), 0.25);  // of random weights
    }
  }
}

TEST_F(Int8, ASavedModelCanBeServedInFloats) {
  TinyModelOptions options;
  options.dtype = DType::kBF16;
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  ASSERT_TRUE(QuantizeFolder(folder.path(), folder.File("int8")).ok());
  const LoadedModel int8 = MustLoad(folder.File("int8"));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const LoadedModel floats = MustLoad(folder.File("int8"), dtype);
    EXPECT_EQ(floats.weight_dtype, dtype);
    EXPECT_LT(MaxRelativeError(Logits(floats), Logits(int8)), 0.05);
  }
}

TEST_F(Int8, FloatsAreRoundedToBf16WhereThatIsAsked) {
  TinyModelOptions options;
  const TempDir f32, bf16;
  WriteTinyModel(f32.path(), options);
  options.dtype = DType::kBF16;
  WriteTinyModel(bf16.path(), options);  // of the same random numbers, but small tensors are rounded too
  EXPECT_EQ(MustLoad(f32.path(), DType::kBF16).weight_bytes, MustLoad(bf16.path()).weight_bytes);
  EXPECT_LT(MaxRelativeError(Logits(MustLoad(f32.path(), DType::kBF16)), Logits(MustLoad(bf16.path()))),
            0.05);
}

// A state of one cannot go on in the other.
TEST_F(Int8, OtherNumbersAreAnotherModel) {
  TinyModelOptions options;
  options.dtype = DType::kBF16;
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  const uint64_t plain = MustLoad(folder.path()).weights_fingerprint;
  EXPECT_EQ(MustLoad(folder.path(), DType::kBF16).weights_fingerprint, plain) << "nothing was converted";
  EXPECT_NE(MustLoad(folder.path(), DType::kI8).weights_fingerprint, plain);
  EXPECT_NE(MustLoad(folder.path(), DType::kF32).weights_fingerprint, plain);
}

TEST_F(Int8, TheTwinsLoseLessThanHalfAPercentOfTheirBitsPerToken) {
  for (const char* mixer : {"linear", "performer", "mamba", "mamba2", "softmax"}) {
    const std::string folder = std::string(WEIR_SOURCE_DIR "/model/zoo/tales-") + mixer;
    std::ifstream file(folder + "/expected.json");
    std::vector<int32_t> text;  // the longest prompt: held-out text
    const nlohmann::json expectations = nlohmann::json::parse(file);
    for (const auto& expected : expectations.at("cases")) {
      auto prompt = expected.at("prompt_token_ids").get<std::vector<int32_t>>();
      if (prompt.size() > text.size()) text = std::move(prompt);
    }
    ASSERT_GE(text.size(), 200u);
    const auto bits = [&](const LoadedModel& model) {
      ModelHarness harness(model.decoder, *device_);
      ModelHarness::Sequence sequence = harness.NewSequence(static_cast<int64_t>(text.size()));
      const std::vector<std::vector<float>> logits = harness.Step({{&sequence, text}});
      double sum = 0;
      for (size_t i = 0; i + 1 < text.size(); ++i) {
        double total = 0;
        for (const float logit : logits[i]) total += std::exp(static_cast<double>(logit));
        sum +=
            std::log2(total) - static_cast<double>(logits[i][static_cast<size_t>(text[i + 1])]) / std::log(2);
      }
      return sum / static_cast<double>(text.size() - 1);
    };
    const double plain = bits(MustLoad(folder)), int8 = bits(MustLoad(folder, DType::kI8));
    EXPECT_GT(plain, 1) << mixer;
    EXPECT_LT(int8, plain * 1.005) << mixer;
    EXPECT_NE(int8, plain) << mixer;
  }
}

TEST_F(Int8, MatricesWithoutRightScalesAreRefused) {
  constexpr std::string_view kMatrix = "model.embeddings.weight", kScales = "model.embeddings.weight_scale";
  const TempDir without, grouped, broken, vector;
  EXPECT_THAT(Refusal(Saved(without,
                            [&](auto* tensors) {
                              std::erase_if(*tensors, [&](const auto& t) { return t.name == kScales; });
                            })),
              AllOf(HasSubstr(kMatrix), HasSubstr(kScales), HasSubstr("one scale per output channel")));
  EXPECT_THAT(Refusal(Saved(grouped,
                            [&](auto* tensors) {
                              TensorSpec& scales = Named(tensors, kScales);
                              scales.shape = {97, 2};
                              scales.bytes += scales.bytes;
                            })),
              AllOf(HasSubstr(kScales), HasSubstr("[97, 2]"), HasSubstr("[97, 1]")));
  EXPECT_THAT(Refusal(Saved(broken,
                            [&](auto* tensors) {
                              const float nan = std::numeric_limits<float>::quiet_NaN();
                              std::memcpy(Named(tensors, kScales).bytes.data(), &nan, sizeof(nan));
                            })),
              AllOf(HasSubstr(kScales), HasSubstr("nan"), HasSubstr("damaged")));
  EXPECT_THAT(Refusal(Saved(vector,
                            [&](auto* tensors) {
                              TensorSpec& norm = Named(tensors, "model.norm.weight");
                              norm.dtype = "I8";
                              norm.bytes.resize(norm.bytes.size() / 4);
                            })),
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("I8"), HasSubstr("floats")));
}

TEST_F(Int8, OtherWaysOfQuantizingAreRefusedByName) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const std::string path = folder.File("config.json");
  std::ifstream file(path);
  nlohmann::json config = nlohmann::json::parse(file);
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  std::ofstream(path) << config.dump();
  EXPECT_THAT(Refusal(folder.path()),
              AllOf(HasSubstr("quantization_config"), HasSubstr("gptq"), HasSubstr("--weight-dtype int8")));
}

TEST_F(Int8, OtherNumbersInTheSameFormatAreRefusedByName) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const std::string saved = folder.File("int8"), path = saved + "/config.json";
  ASSERT_TRUE(QuantizeFolder(folder.path(), saved).ok());
  std::ifstream file(path);
  const nlohmann::json config = nlohmann::json::parse(file);
  const auto refusal = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed["quantization_config"]["config_groups"]["group_0"]["weights"][key] = value;
    std::ofstream(path) << changed.dump();
    return Refusal(saved);
  };
  EXPECT_THAT(refusal("num_bits", 4), AllOf(HasSubstr("group_0.weights.num_bits"), HasSubstr("4")));
  EXPECT_THAT(refusal("type", "float"), AllOf(HasSubstr("weights.type"), HasSubstr("float")));
  EXPECT_THAT(refusal("strategy", "group"), AllOf(HasSubstr("weights.strategy"), HasSubstr("channel")));
  EXPECT_THAT(refusal("symmetric", false), AllOf(HasSubstr("weights.symmetric"), HasSubstr("zero points")));
  std::ofstream(path) << config.dump();
  EXPECT_TRUE(LoadModel(saved, *device_, {}).ok());
}

TEST_F(Int8, AConfigThatDescribesAQuantizationAlreadyIsNamedBeforeAnythingIsWritten) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const std::string path = folder.File("config.json"), to = folder.File("int8");
  std::ifstream file(path);
  nlohmann::json config = nlohmann::json::parse(file);
  config["quantization_config"] = nullptr;
  std::ofstream(path) << config.dump();
  EXPECT_THAT(std::string(QuantizeFolder(folder.path(), to).status().message()),
              AllOf(HasSubstr(path), HasSubstr("quantization_config"), HasSubstr("take it out")));
  EXPECT_FALSE(std::filesystem::exists(to + ".partial"));
}

TEST_F(Int8, TheFolderLiesWhereThePathLeads) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::filesystem::create_directories(folder.File("far/away"));
  std::filesystem::create_directory_symlink(folder.File("far/away"), folder.File("link"));
  ASSERT_TRUE(QuantizeFolder(folder.path(), folder.File("link/../int8")).ok());
  EXPECT_TRUE(std::filesystem::exists(folder.File("far/int8/config.json")));
  EXPECT_FALSE(std::filesystem::exists(folder.File("int8")));
}

TEST_F(Int8, QuantizeFolderLeavesNothingHalfDone) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const std::string to = folder.File("int8");
  EXPECT_EQ(QuantizeFolder(folder.File("none"), to).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(to));
  const absl::Status no_parent = QuantizeFolder(folder.path(), folder.File("no/parent")).status();
  EXPECT_THAT(std::string(no_parent.message()), AllOf(HasSubstr("no/parent"), HasSubstr("No such file")));

  std::filesystem::create_directory(to);
  EXPECT_EQ(QuantizeFolder(folder.path(), to).status().code(), absl::StatusCode::kAlreadyExists);
  std::filesystem::remove(to);
  std::filesystem::create_directory(to + ".partial");
  EXPECT_EQ(QuantizeFolder(folder.path(), to).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(to + ".partial")) << "it may be another run's";
  std::filesystem::remove(to + ".partial");

  ASSERT_TRUE(QuantizeFolder(folder.path(), to + "/").ok()) << "a slash at the end changes nothing";
  EXPECT_TRUE(std::filesystem::exists(to + "/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(to + ".partial"));
  EXPECT_THAT(std::string(QuantizeFolder(to, folder.File("twice")).status().message()),
              HasSubstr("is int8 already"));
  EXPECT_FALSE(std::filesystem::exists(folder.File("twice.partial")));
}

}  // namespace
}  // namespace weir::testing
