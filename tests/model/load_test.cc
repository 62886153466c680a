// What LoadModel refuses, and how it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <regex>
#include <set>

#include "nlohmann/json.hpp"
#include "runtime/ops/short_conv/short_conv.h"
#include "runtime/state/state_arena.h"
#include "tests/support/failing_device.h"
#include "tests/support/model_harness.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_model.h"

namespace weir::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Load : public ::testing::Test {
 protected:
  Load() : device_(CreateCpuDevice(1)) {}

  // Writes the tiny model, lets `edit` change config.json, and loads it.
  template <class F>
  absl::Status LoadEdited(const TinyModelOptions& options, F&& edit) {
    const TempDir folder;
    WriteTinyModel(folder.path(), options);
    std::ifstream file(folder.path() + "/config.json");
    nlohmann::json config = nlohmann::json::parse(file);
    edit(config);
    folder.Write("config.json", config.dump());
    return LoadModel(folder.path(), *device_, {}).status();
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  std::unique_ptr<Device> device_;
};

TEST_F(Load, ReportsWhatWasLoaded) {
  TinyModelOptions options;
  options.dtype = DType::kBF16;
  const LoadedModel model = LoadTinyModel(options, *device_);
  EXPECT_EQ(model.architecture, "LinearAttentionForCausalLM");
  EXPECT_EQ(model.mixer, "linear_attention");
  EXPECT_EQ(model.weight_dtype, DType::kBF16);
  EXPECT_EQ(model.eos_ids, std::vector<int32_t>{0});
  EXPECT_EQ(model.decoder->context_limit(), 0);
  // 2 layers of S and z in two levels, and a window of three inputs of q, k and v.
  const int64_t floats = 2 * (2 * 3 * (20 * 20 + 20) + 3 * 180);
  EXPECT_GE(StateArena::SlotBytes(model.decoder->States()), floats * 4);
  EXPECT_LE(StateArena::SlotBytes(model.decoder->States()), floats * 4 + 10 * 64);
}

TEST_F(Load, AnEndOfSequenceIdThatNoTokenHasIsSaid) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::ofstream(folder.File("generation_config.json")) << R"({"eos_token_id": [97, 5]})";
  const absl::StatusOr<LoadedModel> model = LoadModel(folder.path(), *device_, {});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->eos_ids, std::vector<int32_t>{5});
  ASSERT_EQ(model->warnings.size(), 1u);
  EXPECT_NE(model->warnings[0].find("eos_token_id 97 is none of the 97 ids"), std::string::npos);
}

TEST_F(Load, WeightsThatDoNotFitAreAnErrorWithARemedy) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  FailingDevice small(10'000);
  const absl::Status status = LoadModel(folder.path(), small, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status), HasSubstr("bytes on fail:0"));
  EXPECT_THAT(Text(status), HasSubstr("choose another device with --device"));
  EXPECT_EQ(small.allocated_bytes(), 0);
}

// This program has no CUDA column.
TEST_F(Load, AnOperationThatTheDeviceLacksIsNamed) {
  FailingDevice device(std::numeric_limits<int64_t>::max(), Backend::kCuda);
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const absl::Status status = LoadModel(folder.path(), device, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Text(status), HasSubstr("operation 'gather_packed_rows' has no cuda column in this build"));
}

// The names behind `call` in `text`: "kMatmul" of "Launch(kMatmul, …".
std::set<std::string> OperationsOf(const std::string& text, const std::string& call) {
  std::set<std::string> names;
  const std::regex name("k[A-Z][A-Za-z]*");
  for (size_t at = text.find(call); at != std::string::npos; at = text.find(call, at + 1)) {
    const size_t begin = at + call.size();
    const std::string arguments = text.substr(begin, text.find(call == "Launch(" ? ',' : ')', begin) - begin);
    for (std::sregex_iterator i(arguments.begin(), arguments.end(), name), end; i != end; ++i)
      names.insert(i->str());
  }
  return names;
}

TEST(LoadedOperations, AreAllThatAForwardPassLaunches) {
  int launching = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(WEIR_SOURCE_DIR) + "/model")) {
    if (entry.path().extension() != ".cc") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::set<std::string> launched = OperationsOf(text, "Launch(");
    launching += launched.empty() ? 0 : 1;
    EXPECT_EQ(OperationsOf(text, ".Require("), launched) << entry.path();
  }
  EXPECT_EQ(launching, 6);  // the decoder, the MLP and four mixers
}

TEST_F(Load, FingerprintTellsWeightsApart) {
  TinyModelOptions options;
  const uint64_t first = LoadTinyModel(options, *device_).weights_fingerprint;
  EXPECT_EQ(LoadTinyModel(options, *device_).weights_fingerprint, first);
  options.seed = 2;
  EXPECT_NE(LoadTinyModel(options, *device_).weights_fingerprint, first);
}

TEST_F(Load, FingerprintTellsConfigurationsApart) {
  TinyModelOptions options;
  options.mixer = "softmax";
  const TempDir folder;
  WriteTinyModel(folder.path(), options);
  std::ifstream file(folder.path() + "/config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  const auto fingerprint = [&]() -> uint64_t {
    folder.Write("config.json", config.dump(2));
    const auto loaded = LoadModel(folder.path(), *device_, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->weights_fingerprint : 0;
  };
  const uint64_t first = fingerprint();
  config["transformers_version"] = "9.9";
  EXPECT_EQ(fingerprint(), first) << "changes nothing that is computed";
  config["rope_theta"] = 5000.0;
  EXPECT_NE(fingerprint(), first);
}

TEST_F(Load, AnUnknownArchitectureListsTheKnownOnes) {
  const absl::Status status =
      LoadEdited({}, [](auto& config) { config["architectures"] = {"GPT2LMHeadModel"}; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("GPT2LMHeadModel"));
  EXPECT_THAT(Text(status), HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(Text(status), HasSubstr("model folder"));
}

TEST_F(Load, AModelTypeAloneIsNotBlamedOnArchitectures) {
  const absl::Status status = LoadEdited({}, [](auto& config) {
    config.erase("architectures");
    config["model_type"] = "mamba";
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("'architectures' is missing or empty, and 'model_type' 'mamba' alone"));
}

TEST_F(Load, AConfigurationThatCannotBeReachedIsNotCalledAbsent) {
  TempDir folder;
  std::filesystem::create_symlink("config.json", folder.path() + "/config.json");  // to itself
  const absl::Status status = LoadModel(folder.path(), *device_, {}).status();
  EXPECT_THAT(Text(status), HasSubstr("config.json cannot be reached: Too many levels of symbolic links"));
}

// A hub's cache has such links; mounted alone, they lead nowhere. Optional files may not be passed over then.
TEST_F(Load, ALinkThatLeadsNowhereIsCalledOne) {
  for (const char* name : {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json"}) {
    const TempDir folder;
    WriteTinyModel(folder.path(), {});
    std::filesystem::remove(folder.File(name));
    std::filesystem::create_symlink("../../blobs/1f", folder.File(name));
    const absl::Status status = LoadModel(folder.path(), *device_, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(Text(status),
                HasSubstr(std::string(name) + ": it is a link to '../../blobs/1f', which is not there"));
  }
}

TEST_F(Load, WhatThisUserMayNotReadIsSaid) {
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  const auto refusal = [&] {
    // Root reads everything, so it steps down for the moment.
    const bool root = geteuid() == 0;
    if (root) EXPECT_EQ(seteuid(65534), 0);
    const std::string text = Text(LoadModel(folder.path(), *device_, {}).status());
    if (root) EXPECT_EQ(seteuid(0), 0);
    return text;
  };
  namespace fs = std::filesystem;
  fs::permissions(folder.path(), fs::perms(0711));
  for (const char* name : {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json"}) {
    if (!fs::exists(folder.File(name))) folder.Write(name, "{}");
    fs::permissions(folder.File(name), fs::perms::none);
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr(folder.File(name)), HasSubstr("Permission denied; this process is user")));
    fs::permissions(folder.File(name), fs::perms(0444));
  }
  fs::permissions(folder.path(), fs::perms::none);
  EXPECT_THAT(refusal(), HasSubstr("config.json cannot be reached: Permission denied; this process is user"));
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST_F(Load, UnsupportedValuesAreNamed) {
  TinyModelOptions softmax;
  softmax.mixer = "softmax";
  const auto refused = [&](const TinyModelOptions& options, const char* key, const nlohmann::json& value) {
    const absl::Status status = LoadEdited(options, [&](auto& config) { config[key] = value; });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(Text(status), HasSubstr(key));
  };
  refused({}, "feature_map", "relu");
  refused({}, "norm_q", true);
  refused({}, "hidden_act", "gelu");
  refused({}, "num_kv_heads", 2);
  refused({}, "expand_k", 0.37);
  refused({}, "num_heads", 0);
  refused({}, "hidden_size", "60");
  refused({}, "attn", nlohmann::json{{"layers", {1}}});
  refused(softmax, "attention_bias", true);
  refused(softmax, "mlp_bias", true);
  refused(softmax, "num_key_value_heads", 2);
  refused(softmax, "hidden_act", "gelu_new");
  refused(softmax, "head_dim", 3);
  const absl::Status rope = LoadEdited(softmax, [](auto& config) {
    config["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  });
  EXPECT_THAT(Text(rope), HasSubstr("rope_type"));
}

TEST_F(Load, TheWidestConvolutionRunsAndAWiderOneIsRefused) {
  TinyModelOptions options;
  options.conv_size = kMaxShortConvWidth;
  ModelHarness harness(LoadTinyModel(options, *device_).decoder, *device_);
  ModelHarness::Sequence sequence = harness.NewSequence();
  EXPECT_EQ(harness.Feed(&sequence, {1, 2, 3}, {3}).size(), 3u);
  options.conv_size = kMaxShortConvWidth + 1;
  const absl::Status status = LoadEdited(options, [](auto&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("conv_size"));
}

TEST_F(Load, WeightsThatConfigJsonDoesNotDescribeAreRefused) {
  const absl::Status status = LoadEdited({}, [](auto& config) { config["use_output_gate"] = false; });
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), HasSubstr("norm.weight"));
  const absl::Status fewer = LoadEdited({}, [](auto& config) { config["num_hidden_layers"] = 1; });
  EXPECT_EQ(fewer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(fewer), HasSubstr("model.layers.1"));
}

TEST_F(Load, ATokenizerWiderThanTheModelIsRefused) {
  TinyModelOptions options;
  options.vocab_size = 50;
  const TempDir folder, other;
  WriteTinyModel(folder.path(), options);
  WriteTinyModel(other.path(), {});
  std::filesystem::copy_file(other.path() + "/tokenizer.json", folder.path() + "/tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Text(LoadModel(folder.path(), *device_, {}).status()), HasSubstr("do not belong together"));
}

TEST_F(Load, AMissingFolderOrFileIsNamed) {
  EXPECT_THAT(Text(LoadModel("/nonexistent/model", *device_, {}).status()), HasSubstr("/nonexistent/model"));
  const TempDir folder;
  WriteTinyModel(folder.path(), {});
  std::filesystem::remove(folder.path() + "/tokenizer.json");
  EXPECT_THAT(Text(LoadModel(folder.path(), *device_, {}).status()), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace weir::testing
